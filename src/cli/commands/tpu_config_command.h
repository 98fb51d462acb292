// accelerate tpu-config
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// Runs commands on all machines of a TPU pod, through gcloud.
Command setup_tpu_config(CLI::App& app);

}  // namespace accelerate::cli
