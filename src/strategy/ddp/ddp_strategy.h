// Replicas that average their gradients, on c10d's reducer.
#pragma once

#include <memory>

#include "accelerate/communicator.h"
#include "accelerate/strategy.h"

namespace accelerate {

// A replica of the model on every rank. wrap() checks that all ranks hold the same parameters,
// copies those of rank 0 to all and returns a model whose backward pass averages gradients bucket
// by bucket while it still runs. A model that needs no gradients stays local.
class DdpStrategy final : public Strategy {
 public:
  DdpStrategy(std::shared_ptr<Communicator> communicator, const DdpOptions& options);
  std::string_view name() const override { return "ddp"; }
  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) override;
  void join_uneven_inputs(const std::function<void()>& body, const JoinOptions& options,
                          const std::vector<std::shared_ptr<ModelStrategy>>& models,
                          const std::vector<std::shared_ptr<ModelStrategy>>& others) override;

 private:
  std::shared_ptr<Communicator> communicator_;
  DdpOptions options_;
};

}  // namespace accelerate
