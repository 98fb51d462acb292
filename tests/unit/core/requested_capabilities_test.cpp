// An accelerator does not train as something else than what its surroundings ask for.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "accelerate/accelerator.h"
#include "accelerate/errors.h"

namespace accelerate {
namespace {

class SetVariable {
 public:
  SetVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  SetVariable(const SetVariable&) = delete;
  SetVariable& operator=(const SetVariable&) = delete;
  ~SetVariable() { unsetenv(name_); }

 private:
  const char* name_;
};

template <class Refusal>
std::string refusal_of(AcceleratorOptions options = {}) {
  options.cpu = true;
  try {
    const Accelerator accelerator(options);
  } catch (const Refusal& error) {
    return error.message() + " | " + error.where();
  }
  return "accepted";
}

TEST(Accelerator, RefusesWhatItsVariablesAskForAndThisBuildLacks) {
  for (const auto& [variable, name] : {std::pair{"ACCELERATE_USE_MEGATRON_LM", "Megatron-LM"},
                                       std::pair{"ACCELERATE_USE_TPU", "training on TPUs"},
                                       std::pair{"ACCELERATE_TPU", "training on TPUs"},
                                       std::pair{"ACCELERATE_IN_TPU_POD", "training on TPUs"}}) {
    const SetVariable set(variable, "True");
    EXPECT_EQ(refusal_of<ConfigError>(), std::string(name) + " is not part of this build | " +
                                             "environment variable " + variable);
  }
}

TEST(Accelerator, RefusesTheDevicesThatVariablesOfXlaName) {
  {
    const SetVariable set("PJRT_DEVICE", "TPU");
    EXPECT_EQ(refusal_of<ConfigError>(),
              "training on TPUs is not part of this build | environment variable PJRT_DEVICE");
  }
  {
    const SetVariable set("PJRT_DEVICE", "TPU");
    const SetVariable use_cpu("ACCELERATE_USE_CPU", "True");  // accelerate launch --cpu
    EXPECT_EQ(refusal_of<ConfigError>(), "accepted");
  }
  const SetVariable cpu("PJRT_DEVICE", "CPU");
  const SetVariable precision("XLA_USE_BF16", "1");  // how an XLA device would compute
  EXPECT_EQ(refusal_of<ConfigError>(), "accepted");
}

TEST(Accelerator, VariablesThatSwitchItOffOrAreEmptyAskForNothing) {
  for (const char* value : {"false", ""}) {
    const SetVariable set("ACCELERATE_USE_MEGATRON_LM", value);
    const SetVariable sharded("ACCELERATE_USE_FSDP", value);
    EXPECT_EQ(refusal_of<ConfigError>(), "accepted");
  }
}

TEST(Accelerator, RefusesFp8WhoeverAsksForIt) {
  EXPECT_EQ(refusal_of<UsageError>({.mixed_precision = "fp8"}),
            "fp8 is not part of this build | AcceleratorOptions::mixed_precision");
  const SetVariable set("ACCELERATE_MIXED_PRECISION", "FP8");
  EXPECT_EQ(refusal_of<ConfigError>(),
            "fp8 is not part of this build | environment variable ACCELERATE_MIXED_PRECISION");
  EXPECT_EQ(refusal_of<ConfigError>({.mixed_precision = "no"}), "accepted");  // options win
}

}  // namespace
}  // namespace accelerate
