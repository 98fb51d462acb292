// A run as JSON, whole or what is new of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "monitor/view/run_folder.h"

namespace accelerate::monitor {

// What a reader has been told of the curves of a run, by name.
struct Told {
  struct Curve {
    uint64_t generation = 0;
    size_t points = 0;
    double last_weight = 0;  // of the last point: more may have been put together with it
  };
  std::map<std::string, Curve> curves{};
  size_t settings = 0;
  bool is_new = true;
};

// The present state of `run`, and those points of its curves that `told` does not have yet; `told`
// then has them. docs/monitor.md describes the fields. Texts that are not UTF-8 are made so.
std::string run_json(const RunFolder& run, Told& told);

// A list of names, and which of them is shown first.
std::string names_json(const std::vector<std::string>& names, const std::string& first,
                       const std::string& version);

}  // namespace accelerate::monitor
