// Deletes old checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace accelerate::files {

struct RotationReport {
  std::vector<std::string> removed{};    // names, oldest first
  std::vector<std::string> left_over{};  // what could not be deleted, one sentence each
};

// Deletes the oldest complete checkpoints of the series of `newest` until `total_limit` complete
// ones are left. `newest` itself stays, even if its number is not the largest; incomplete ones are
// neither counted nor touched. A checkpoint vanishes from the folder in one step, before its files
// go. The caller holds the lock of the series. Errors are sentences of the report: whoever has just
// saved has not failed.
RotationReport rotate(const std::filesystem::path& parent, const std::string& newest,
                      int64_t total_limit);

}  // namespace accelerate::files
