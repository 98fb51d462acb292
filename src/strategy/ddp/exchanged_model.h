// A model whose gradients the ranks exchange, as the checks of updates see it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace torch::nn {
class Module;
}

namespace accelerate {

class ExchangedModel {
 public:
  virtual ~ExchangedModel() = default;

  virtual const torch::nn::Module& module() const = 0;
  // Whether the gradient of `parameter` is one that all ranks have alike after an exchange.
  virtual bool equalizes(const at::Tensor& parameter) const = 0;
  // Throws UsageError if one of `parameters` belongs to this model and has a gradient of this rank
  // alone, while the ranks exchange gradients.
  virtual void require_synchronised(const std::vector<at::Tensor>& parameters) const = 0;
  // How many passes have brought the gradients of all ranks together.
  virtual int64_t reduced_passes() const = 0;
  // Whether ranks whose gradients differ would train apart, and are to be compared.
  virtual bool is_replicated() const = 0;
};

}  // namespace accelerate
