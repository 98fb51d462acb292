// When all gradients of a unit are there.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "compat/gradient_hooks.h"
#include "residency/touch/touched_units.h"

namespace accelerate::residency {

// Counts the gradients of each unit as backward passes add to them, on the threads of the passes.
class UnitGradients {
 public:
  // `on_complete` is called when all parameters of a unit that want a gradient have it from this
  // pass: in the middle of the pass, on its thread, one call at a time. It may take the gradients
  // away, exchange, and tell units.gradient_done(). `units` outlives this. What it throws ends the
  // pass. Parameters whose requires_grad changes later need a new one of these.
  UnitGradients(const TouchedUnits& units, std::function<void(size_t unit)> on_complete);

  // Before a pass that is to be counted.
  void begin_pass();
  // After it: units of which a part has come, or nothing; those without parameters that want
  // gradients are not among them.
  struct Unfinished {
    size_t unit = 0;
    bool is_untouched = true;  // no gradient of it came
  };
  std::vector<Unfinished> end_pass();
  bool has_come(size_t unit, size_t index) const;

 private:
  struct Counted {
    size_t wanted = 0;
    size_t missing = 0;
    std::vector<bool> came{};
  };
  void came(size_t unit, size_t index);

  const TouchedUnits& units_;
  const std::function<void(size_t)> on_complete_;
  mutable std::mutex mutex_;  // of what follows
  bool counts_ = false;
  std::vector<Counted> counted_;
  std::vector<std::pair<size_t, size_t>> places_;  // by number of a hook
  std::unique_ptr<compat::GradientHooks> hooks_;   // last: they call the rest
};

}  // namespace accelerate::residency
