// What `accelerate config` asks.
#pragma once

#include "cli/wizard_prompter.h"
#include "config/file_node.h"

namespace accelerate::cli {

// What the machine offers, as proposals for answers.
struct MachineOffer {
  int gpus = 0;
  int cores = 1;
};

// Asks `prompter` what matters, each question only where the answers so far make it matter, and
// returns the configuration that the answers describe. Throws what the prompter throws, and
// ConfigError if the answers contradict each other in a way that no question showed.
config::FileNode ask_configuration(Prompter& prompter, const MachineOffer& machine);

}  // namespace accelerate::cli
