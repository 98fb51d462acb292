// What tests of trackers share: values at a step, and the files that come of them.
#pragma once

#include <accelerate/tracker.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "unit/files/safetensors_files.h"

namespace accelerate::test {

inline std::chrono::system_clock::time_point at_second(int64_t second) {
  return std::chrono::system_clock::time_point(std::chrono::seconds(second));
}

inline TrackedStep at_step(std::optional<int64_t> step) {
  return {.step = step, .time = at_second(1700000000 + step.value_or(0))};
}

inline void log_one(GeneralTracker& tracker, int64_t step, const TrackerConfig& values) {
  tracker.log(values, at_step(step));
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class TrackedRun : public ScratchFolder {
 protected:
  TrackerRun run(bool continues = false) const {
    return {.project = "demo", .logging_dir = folder_, .continues = continues};
  }
};

}  // namespace accelerate::test
