// From FSDP 1 to FSDP 2.
#pragma once

#include <string>
#include <vector>

#include "config/file_node.h"

namespace accelerate::config {

struct Fsdp2Conversion {
  FileNode document{};
  std::vector<std::string> notes{};  // what was left out, and why nothing was done
};

// `document` with an fsdp_config for version 2: the sharding strategy becomes
// fsdp_reshard_after_forward, keys that version 2 does not have are left out, all others, known or
// not, stay. Without an fsdp_config, or with one of version 2, nothing changes. Throws ConfigError
// if fsdp_sharding_strategy and fsdp_reshard_after_forward name two strategies.
Fsdp2Conversion to_fsdp2(FileNode document);

}  // namespace accelerate::config
