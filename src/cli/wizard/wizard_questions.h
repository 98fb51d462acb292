// What `accelerate config` asks.
#pragma once

#include <span>

#include "cli/wizard/wizard_answers.h"
#include "config/capabilities.h"
#include "config/file_node.h"

namespace accelerate::cli {

// What the machine offers, as proposals for answers, and what this build can do: nothing else is
// offered.
struct MachineOffer {
  int gpus = 0;
  int cores = 1;
  std::span<const config::CapabilityRow> capabilities = config::kCapabilities;
  PresentValues present{};  // of the file that is to be replaced
};

// Asks `prompter` what matters, each question only where the answers so far make it matter, goes
// back to earlier questions where the person wants that, and
// returns the configuration that the answers describe. Throws what the prompter throws, and
// ConfigError if the answers contradict each other in a way that no question showed.
config::FileNode ask_configuration(Prompter& prompter, const MachineOffer& machine);

}  // namespace accelerate::cli
