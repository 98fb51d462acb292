// Trainings that variables of DeepSpeed or FSDP configure, as the launcher sets them.
#pragma once

#include <stdlib.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "multiproc/zero/zero_training.h"

namespace accelerate::test {

using nlohmann::json;

// Sets variables of this rank until it goes out of scope.
class RankVariables {
 public:
  explicit RankVariables(const std::map<std::string, std::string>& values) {
    for (const auto& [name, value] : values) {
      setenv(name.c_str(), value.c_str(), 1);
      names_.push_back(name);
    }
  }
  RankVariables(const RankVariables&) = delete;
  RankVariables& operator=(const RankVariables&) = delete;
  ~RankVariables() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

// A configuration of DeepSpeed that is complete, with `more` in it.
inline json deepspeed_config(int stage, const json& more = json::object()) {
  json config = {{"train_micro_batch_size_per_gpu", 4}, {"zero_optimization", {{"stage", stage}}}};
  config.merge_patch(more);
  return config;
}

inline std::map<std::string, std::string> deepspeed_variables(const json& config) {
  return {{"ACCELERATE_USE_DEEPSPEED", "true"},
          {"ACCELERATE_DEEPSPEED_CONFIG_FILE", config.dump()}};
}

inline std::map<std::string, std::string> fsdp_variables(
    std::map<std::string, std::string> more = {}) {
  more["ACCELERATE_USE_FSDP"] = "true";
  return more;
}

// What the constructor makes of the options of the program.
inline AcceleratorOptions settled(const std::map<std::string, std::string>& variables,
                                  const AcceleratorOptions& options = on_cpu()) {
  const RankVariables set(variables);
  return Accelerator(options).options();
}

// "message | place" of the error that the constructor ends with; "accepted" without one.
inline std::string config_refusal(const std::map<std::string, std::string>& variables,
                                  const AcceleratorOptions& options = on_cpu()) {
  try {
    settled(variables, options);
  } catch (const Error& error) {
    return error.message() + " | " + error.where();
  }
  return "accepted";
}

inline const ZeroOptions& zero_of(const AcceleratorOptions& options) {
  return std::get<ZeroOptions>(options.strategy);
}

}  // namespace accelerate::test
