// The part of the wizard about FSDP and DeepSpeed.
#pragma once

#include "cli/wizard_prompter.h"
#include "config/file_node.h"

namespace accelerate::cli {

// Asks whether and how models are sharded, and sets distributed_type and the map of the answer in
// `document`. Throws what the prompter throws.
void ask_sharding(Prompter& prompter, config::FileNode& document);

}  // namespace accelerate::cli
