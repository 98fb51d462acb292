// What people and programs read of a self-test.
#pragma once

#include <accelerate/process_state.h>

#include <cstddef>
#include <string>
#include <vector>

#include "selftest/runner.h"

namespace accelerate::selftest {

// Writes results as a list with ticks. Colours only where asked for. Details are broken between
// words where the list is `columns` wide; 0: they are one line.
class TickList {
 public:
  TickList(int world_size, bool colours, size_t columns = 0)
      : world_size_(world_size), colours_(colours), columns_(columns) {}

  // The lines of one result, with the name of its family before them where a new one begins.
  std::string lines(const CheckResult& result);
  // "20 passed, 1 skipped, 1 failed in 3.2 s".
  std::string summary(const std::vector<CheckResult>& results) const;

 private:
  std::string coloured(const char* colour, const std::string& text) const;

  int world_size_;
  bool colours_;
  size_t columns_;
  std::string family_;
};

// One JSON object, indented, without a newline at its end.
std::string to_json(const ProcessState& state, const std::vector<CheckResult>& results);

bool all_passed(const std::vector<CheckResult>& results);

// Whether `fd` is a terminal on which the user wants colours (see no-color.org); under Open MPI
// nobody knows.
bool wants_colours(int fd);

// The width of the terminal that `fd` is; 0 if it is none, or nobody knows.
size_t columns_of(int fd);

}  // namespace accelerate::selftest
