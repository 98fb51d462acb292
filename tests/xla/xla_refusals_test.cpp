// What is refused before torch_xla is opened.
#include <gmock/gmock.h>
#include <stdlib.h>

#include "xla/xla_runs.h"

namespace accelerate {
namespace {

using testing::HasSubstr;

std::string refusal_with(const char* variable, const char* value) {
  setenv(variable, value, 1);
  std::string text = "accepted";
  try {
    const Accelerator accelerator(test::on_device("xla"));
  } catch (const Error& error) {
    text = error.what();
  }
  unsetenv(variable);
  return text;
}

TEST(XlaRefusals, ATpuThatIsNotThere) {
  const std::string text = refusal_with("PJRT_DEVICE", "TPU");
  EXPECT_THAT(text, HasSubstr("ConfigError: this machine has no TPU"));
  EXPECT_THAT(text, HasSubstr("environment variable PJRT_DEVICE"));
  EXPECT_FALSE(compat::xla_is_open());
}

TEST(XlaRefusals, AClientThatIsNotKnown) {
  EXPECT_THAT(refusal_with("PJRT_DEVICE", "CUDA"),
              HasSubstr("PJRT_DEVICE=CUDA is not a client that this library knows"));
  EXPECT_FALSE(compat::xla_is_open());
}

// Last: they open it.
TEST(XlaRefusals, SeveralProcesses) {
  setenv("PJRT_DEVICE", "CPU", 1);
  setenv("RANK", "0", 1), setenv("LOCAL_RANK", "0", 1), setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "29511", 1);
  EXPECT_THAT(refusal_with("WORLD_SIZE", "2"),
              HasSubstr("2 processes cannot train together on XLA devices"));
  for (const char* name : {"RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
}

TEST(XlaRefusals, StrategiesOfRanks) {
  const auto refusal_of = [](AcceleratorOptions options) -> std::string {
    options.device = "xla";
    try {
      const Accelerator accelerator(options);
    } catch (const UsageError& error) {
      return error.message();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal_of({.strategy = ZeroOptions{.stage = 2}}),
              HasSubstr("shards of ranks on an XLA device"));
  EXPECT_THAT(refusal_of({.flat = FlatOptions{}}), HasSubstr("flat on an XLA device"));
  EXPECT_EQ(refusal_of({}), "accepted");
}

TEST(XlaRefusals, CpuBesideXla) {
  try {
    const Accelerator accelerator({.cpu = true, .device = "xla"});
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the option device = \"xla\" contradicts the option cpu"));
  }
}

}  // namespace
}  // namespace accelerate
