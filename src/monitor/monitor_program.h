// What the commands of the program run: pages, recorders and screens until somebody ends them.
#pragma once

#include <filesystem>
#include <string>

#include "monitor/server/listening.h"

namespace accelerate::monitor {

// Serves the page of a run, or of a folder of runs, until SIGINT or SIGTERM. Returns 0.
int serve_page(const std::filesystem::path& path, OpenPage page);

struct RecorderTask {
  std::filesystem::path folder{};
  uint64_t machine = 0;
  int page_socket = -1;  // listening; -1: no page
  std::string token{};
};

// Beside a launcher: records what this machine does for the run in `folder`, and serves its page,
// until SIGTERM, which the kernel sends when the launcher has ended. Does not listen to what a
// terminal sends to all its processes. Returns 0.
int run_recorder(const RecorderTask& task);

// Shows a run in the terminal until the user has seen enough; where there is none, or with `once`,
// prints its state once. Returns 0, or 1 if the run has failed.
int show_top(const std::filesystem::path& path, bool once);

}  // namespace accelerate::monitor
