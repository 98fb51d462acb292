// A model of which some ranks have no values yet, and how they get them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "accelerate/communicator.h"

namespace torch::nn {
class Module;
}

namespace accelerate {

// Parameters and buffers that are empty (see EmptyWeights) on some rank. What all ranks have loaded
// each reads for itself; what all have only built is initialised by each from the random state of
// rank 0, which is what one process would do; everything else comes from rank 0, tensor by tensor.
class EmptyModel {
 public:
  // Keeps values that this rank has until they were sent. Throws UsageError on all ranks alike if
  // rank 0 does not know the values of a tensor that another rank needs. Collective.
  EmptyModel(const torch::nn::Module& module, std::shared_ptr<Communicator> ranks);

  bool none() const { return tensors_.empty(); }
  // Whether the values of this tensor come from fill().
  bool has(const at::Tensor& tensor) const {
    return numbers_.contains(tensor.unsafeGetTensorImpl());
  }
  // Gives memory on `device` to those without that are not among `others`.
  void make_memory(c10::Device device, const std::unordered_set<const void*>& others);

  // Calls `take` for each of them with all its values, which are on the CPU or where rank 0 has
  // them; it may keep what it likes. No more is in memory at a time than the making needs, and
  // afterwards nothing is held. Collective.
  using Take = std::function<void(at::Tensor& tensor, const at::Tensor& values)>;
  void fill(const Take& take);

 private:
  struct Empty {
    std::string name{};
    at::Tensor tensor{};
    at::Tensor own{};  // deferred, or with the values of this rank
    bool from_first = false;
  };
  // What this rank knows of the values of a tensor.
  static std::string origin_of(const at::Tensor& tensor, std::vector<const void*>& records);
  void fill_here(const Take& take);
  void fill_from_first(const Take& take);
  // Makes the values of those that come from rank 0, or of those that do not. Not collective.
  void produce(bool from_first, const std::function<void(size_t, const at::Tensor&)>& give);

  std::shared_ptr<Communicator> ranks_;
  std::vector<Empty> tensors_;
  std::unordered_set<const void*> numbers_;
};

}  // namespace accelerate
