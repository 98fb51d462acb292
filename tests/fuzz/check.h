// What a fuzz target asks for: stops the run where it does not hold.
#pragma once

#include <cstdlib>

#define FUZZ_CHECK(condition) \
  do {                        \
    if (!(condition)) {       \
      std::abort();           \
    }                         \
  } while (false)
