// One model whose gradients are averaged over the ranks while a backward pass runs.
#pragma once

#include <memory>

#include "accelerate/communicator.h"
#include "accelerate/strategy.h"
#include "strategy/trainable_parameters.h"

namespace accelerate {

// Gives all ranks the parameters and buffers of rank 0. `parameters` are those of `module`, at
// least one. Collective.
std::shared_ptr<ModelStrategy> make_ddp_model(std::shared_ptr<torch::nn::Module> module,
                                              TrainableParameters parameters,
                                              std::shared_ptr<Communicator> communicator,
                                              const DdpOptions& options);

}  // namespace accelerate
