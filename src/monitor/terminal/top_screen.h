// A run as text for a terminal.
#pragma once

#include <cstddef>
#include <string>

#include "monitor/view/run_folder.h"

namespace accelerate::monitor {

struct ScreenSize {
  size_t columns = 80;
  size_t rows = 24;  // 0: as many as it takes
};

// Lines of at most size.columns columns, no more than size.rows of them, and the last without an
// end where that is what fits. A pure function of what the run has told and of the time.
std::string top_screen(const RunFolder& run, const ScreenSize& size, bool has_colours);

// A curve in one line of block characters: the newest `columns` points or means of them.
std::string spark_line(const Series& series, size_t columns);

}  // namespace accelerate::monitor
