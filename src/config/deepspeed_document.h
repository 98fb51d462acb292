// DeepSpeed's own JSON from settings.
#pragma once

#include <filesystem>
#include <optional>

#include "config/file_node.h"
#include "config/settings.h"

namespace accelerate::config {

struct DeepspeedDocument {
  FileNode document{};          // what DeepSpeed calls its config; "auto" is left to prepare()
  bool shards_at_init = false;  // parameters are sharded while the model is built
};

// What `settings` say, as DeepSpeed writes it. With `file`, the user's own JSON, that counts, and
// settings fill in what it calls "auto"; `path` is for messages. Throws ConfigError if it says
// nothing of zero_optimization.
DeepspeedDocument deepspeed_document(const Settings& settings,
                                     const std::optional<FileNode>& file = std::nullopt,
                                     const std::filesystem::path& path = {});

}  // namespace accelerate::config
