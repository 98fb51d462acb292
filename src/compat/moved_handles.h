// Parameters that become other tensors when their module moves.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <map>
#include <string>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace accelerate::compat {

// Module::to() gives a parameter other data and keeps its TensorImpl. That of the CPU cannot become
// one of XLA, so all handles have to be replaced: those in the dictionaries of modules, in the
// members of module objects, which are found by what they point at, and in optimizers. Where
// something else holds a parameter, require_all_followed() says which.
//
// Modules must have been made by new or std::make_shared, as TORCH_MODULE does. One thread.
class MovedHandles {
 public:
  // Parameters and buffers of `module` and of the modules in it, with their gradients.
  void move(torch::nn::Module& module, c10::Device device);
  // The parameters of its groups, and what it keeps for them.
  void follow(torch::optim::Optimizer& optimizer);
  // Throws UsageError that names a parameter whose old tensor somebody still holds: training would
  // not reach it. Forgets the moved tensors otherwise.
  void require_all_followed();

 private:
  struct Moved {
    at::Tensor old;  // alive until all have followed
    at::Tensor now;
    std::string name;
    size_t number;  // in the order of the module
  };
  void replace(at::Tensor& handle) const;
  void replace_members(torch::nn::Module& module) const;

  std::map<const c10::TensorImpl*, Moved> moved_;
};

}  // namespace accelerate::compat
