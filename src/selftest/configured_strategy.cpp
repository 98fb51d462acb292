#include "selftest/configured_strategy.h"

#include <accelerate/accelerator.h>
#include <stdlib.h>

#include <string>

namespace accelerate::selftest {
namespace {

bool is_set(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

StrategyOptions take_configured_strategy() {
  constexpr const char* kAsking[] = {"ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"};
  if (!is_set(kAsking[0]) && !is_set(kAsking[1])) return AutoStrategy{};
  const Accelerator accelerator;
  const std::string precision(accelerator.mixed_precision().name());
  setenv("ACCELERATE_MIXED_PRECISION", precision.c_str(), 1);
  for (const char* name : kAsking) unsetenv(name);
  return accelerator.options().strategy;
}

}  // namespace accelerate::selftest
