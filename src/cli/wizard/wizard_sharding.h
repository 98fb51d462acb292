// The part of the wizard about FSDP and DeepSpeed.
#pragma once

#include <span>

#include "cli/wizard/wizard_answers.h"
#include "config/capabilities.h"
#include "config/file_node.h"

namespace accelerate::cli {

// Asks whether and how models are sharded, and sets distributed_type and the map of the answer in
// `document`. Asks nothing where `capabilities` have no way to shard them. Throws what the prompter
// throws.
void ask_sharding(const Asking& asking, config::FileNode& document,
                  std::span<const config::CapabilityRow> capabilities);

}  // namespace accelerate::cli
