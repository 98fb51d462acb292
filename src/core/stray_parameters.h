// Parameters that losses train although nothing that was prepared holds them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <unordered_map>
#include <vector>

namespace accelerate {

// On several ranks nobody averages the gradients of such parameters, as of a second model that was
// not given to prepare(). They are told from most inputs that need a gradient by their values,
// which change from one pass to another while the tensor stays the same; an input that is written
// into the same tensor again and again looks alike. One thread at a time. Not collective.
class StrayParameters {
 public:
  // Before a backward pass from `loss`; `held` are the parameters of all that was prepared. Walks
  // the graph in the first passes only. Warns once.
  void look(const at::Tensor& loss, const std::vector<at::Tensor>& held);
  bool is_done() const { return looks_left_ == 0; }

 private:
  // A leaf of an earlier pass, and the sum of its values then.
  struct Known {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    double sum = 0;
  };

  int looks_left_ = 64;
  std::unordered_map<const void*, Known> known_;
};

}  // namespace accelerate
