#include "optim/momentum_option.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <tuple>
#include <typeindex>
#include <unordered_map>

namespace accelerate {
namespace {

using torch::optim::OptimizerOptions;

template <class Options>
MomentumOption momentum_of() {
  return {
      .read =
          [](const OptimizerOptions& any) { return static_cast<const Options&>(any).momentum(); },
      .write = [](OptimizerOptions& any,
                  double value) { static_cast<Options&>(any).momentum(value); },
      .is_beta1 = false};
}

template <class Options>
MomentumOption beta1_of() {
  return {.read =
              [](const OptimizerOptions& any) {
                return std::get<0>(static_cast<const Options&>(any).betas());
              },
          .write = [](OptimizerOptions& any,
                      double value) { std::get<0>(static_cast<Options&>(any).betas()) = value; },
          .is_beta1 = true};
}

}  // namespace

const MomentumOption* find_momentum_option(const OptimizerOptions& options) {
  namespace optim = torch::optim;
  static const std::unordered_map<std::type_index, MomentumOption> table{
      {typeid(optim::SGDOptions), momentum_of<optim::SGDOptions>()},
      {typeid(optim::RMSpropOptions), momentum_of<optim::RMSpropOptions>()},
      {typeid(optim::AdamOptions), beta1_of<optim::AdamOptions>()},
      {typeid(optim::AdamWOptions), beta1_of<optim::AdamWOptions>()}};
  const auto found = table.find(typeid(options));
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace accelerate
