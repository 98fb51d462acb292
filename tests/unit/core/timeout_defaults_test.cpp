// The defaults that help and --explain show are those of the library.
#include <gtest/gtest.h>

#include "accelerate/accelerator.h"
#include "config/schema.h"

namespace accelerate {
namespace {

TEST(TimeoutDefaults, AreThoseThatTheSettingsShow) {
  const Accelerator accelerator({.cpu = true});
  const ProcessGroupOptions options = accelerator.options().process_group;
  const auto seconds = [](const auto& time) {
    return std::to_string(time.value() / std::chrono::seconds(1));
  };
  EXPECT_EQ(config::find_setting("collective_timeout")->fallback, seconds(options.timeout));
  EXPECT_EQ(config::find_setting("rendezvous_timeout")->fallback,
            seconds(options.rendezvous_timeout));
}

}  // namespace
}  // namespace accelerate
