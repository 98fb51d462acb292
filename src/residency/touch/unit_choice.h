// Which parameters of a model form units.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "residency/touch/touch_unit.h"

namespace torch::nn {
class Module;
}

namespace accelerate::residency {

// All ways choose modules. A parameter belongs to the unit of the innermost chosen module that it
// lies in, by the first of its names, and those that lie in none form a unit of their own, called
// "rest". A unit whose parameters differ in dtype or device becomes several. Not in any unit, and
// so whole on every rank: what is not a dense floating-point tensor, and parameters with fewer
// elements than `persistence_threshold`. Units come in the order in which their modules were
// registered. Parameters on the meta device count as those on `device`, where they will be.
struct UnitChoice {
  int64_t persistence_threshold = 0;
  std::optional<c10::Device> device{};
};

// Blocks: the members of ModuleList, ModuleDict and Sequential, and children of one class that a
// module registers several times, if they are made of other modules and hold a twentieth of the
// model together. One that holds more than a quarter of the model is looked into where it has
// blocks itself. Outside of them modules whose own parameters are a twentieth of the model or more.
std::vector<UnitParameters> units_by_structure(const torch::nn::Module& module,
                                               const UnitChoice& choice = {});

// Modules of at least `min_numel` elements, without those of units inside of them. A list of
// modules is none itself.
std::vector<UnitParameters> units_by_size(const torch::nn::Module& module, int64_t min_numel,
                                          const UnitChoice& choice = {});

// Modules of one of these classes ("Block" and "BlockImpl" are the same), or whose name fits a
// pattern: in "blocks.*", * stands for one part of a name and ** for any number of them. Throws
// UsageError for a pattern that fits nothing.
std::vector<UnitParameters> units_by_name(const torch::nn::Module& module,
                                          const std::vector<std::string>& patterns,
                                          const UnitChoice& choice = {});

// These modules. Throws UsageError for one that is not part of `module`.
std::vector<UnitParameters> units_of_modules(const torch::nn::Module& module,
                                             const std::vector<const torch::nn::Module*>& modules,
                                             const UnitChoice& choice = {});

}  // namespace accelerate::residency
