// What `accelerate env` prints: for people, and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/reports/env_libtorch.h"
#include "cli/reports/system_facts.h"
#include "config/settings.h"

namespace accelerate::cli {

// What accelerate launch would begin with.
struct ConfigurationFacts {
  std::string file{};        // "": none
  std::string if_written{};  // where accelerate config would write one
  std::string problem{};     // why it cannot be used; "": it can
  std::string problem_at{};
  std::optional<config::Settings> settings{};  // with those of the variables; none with a problem
};

struct EnvironmentFacts {
  std::string version{};    // of this program
  std::string built_for{};  // the version of the libtorch of the build
  std::string compiler{};
  LibtorchFacts libtorch{};
  PlatformFacts platform{};
  ProcessorFacts processor{};
  uint64_t memory = 0;  // bytes
  std::vector<GpuFacts> gpus{};
  std::string gpu_driver{};
  PythonFacts python{};
  ConfigurationFacts configuration{};
  std::vector<std::string> variables{};  // NAME=value
};

std::string environment_text(const EnvironmentFacts& facts);

// Its keys and units stay as docs/launching.md says; what is not known is null.
std::string environment_json(const EnvironmentFacts& facts);

}  // namespace accelerate::cli
