// The strategy that this set-up trains with.
#pragma once

#include <accelerate/strategy_options.h>

namespace accelerate::selftest {

// What the variables of DeepSpeed or FSDP ask for; AutoStrategy where they ask for nothing. From
// then on they say nothing but the precision: the checks have precisions, accumulation and
// optimizers of their own, which the rest of a configuration would contradict. Collective. Throws
// what the constructor of Accelerator throws.
StrategyOptions take_configured_strategy();

}  // namespace accelerate::selftest
