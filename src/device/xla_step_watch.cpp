#include "device/xla_step_watch.h"

#include <bit>

#include "base/word_list.h"

namespace accelerate::device {

std::vector<std::string> XlaStepWatch::report(const Counts& counts) {
  constexpr int64_t kStepsThatCompile = 3;
  std::vector<std::string> lines;
  std::vector<std::string> left;
  for (const auto& [name, count] : counts.on_the_host) {
    if (count > 0 && named_.insert(name).second) left.push_back(name);
  }
  if (!left.empty()) {
    lines.push_back("XLA left " + joined(left) +
                    " to the CPU: the device waits for the host there, in every step");
  }
  if (steps_ <= kStepsThatCompile) return lines;
  // Told at the first, second, fourth, eighth ... of them.
  if (!std::has_single_bit(static_cast<uint64_t>(++late_))) return lines;
  lines.push_back("XLA compiled step " + std::to_string(steps_) + " anew (" +
                  std::to_string(counts.compilations) +
                  " programs so far), which takes much longer than the step: keep the shapes of "
                  "batches the same (drop_last, or pad to a few lengths) and numbers such as a "
                  "count of rows out of the computation");
  return lines;
}

}  // namespace accelerate::device
