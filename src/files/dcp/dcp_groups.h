// The groups of an optimizer, put together from the values of a folder of
// torch.distributed.checkpoint.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace accelerate::files {

class DcpGroups {
 public:
  // Adds what an archive of torch.save holds, found under these keys behind "param_groups": the
  // number of the group, the option. False if it is something that JSON does not have. Throws
  // CheckpointError, with `where` as its place, if the archive is damaged.
  bool add(const std::vector<std::string>& keys, std::span<const std::byte> archive,
           const std::string& where);

  bool empty() const { return groups_.empty(); }
  // A list, in the order of their numbers.
  std::string text() const;

 private:
  std::map<size_t, nlohmann::ordered_json> groups_;
};

}  // namespace accelerate::files
