// What tests of strategies of users share.
#pragma once

#include <utility>

#include "multiproc/training.h"

namespace accelerate::test {

struct OwnStrategy : Ranks {};

inline AcceleratorOptions with_strategy(StrategyOptions strategy) {
  AcceleratorOptions options = on_cpu();
  options.strategy = std::move(strategy);
  return options;
}

}  // namespace accelerate::test
