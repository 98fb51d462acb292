// Data-parallel training written by hand on c10d's reducer: of the library only the constructor
// call that fits all versions of torch.
#pragma once

#include "compat/reducer.h"
#include "training_loop.h"

namespace bench {

// Which process this is, from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
struct Place {
  int rank = 0;
  int world_size = 1;
  std::string master_address;
  uint16_t master_port = 0;

  static Place from_environment();
};

// The store of a job that uses no library. Rank 0 serves it. Collective.
c10::intrusive_ptr<c10d::Store> open_store(const Place& place);

// Gloo on the loopback device, among all ranks. Collective.
c10::intrusive_ptr<c10d::ProcessGroup> open_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const Place& place);

class ReducerLoop final : public TrainingLoop {
 public:
  ReducerLoop(c10::intrusive_ptr<c10d::ProcessGroup> group, const Task& task);
  void step() override;
  std::vector<at::Tensor> parameters() const override { return model_->parameters(); }

 private:
  HandBatches batches_;
  Mlp model_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  accelerate::compat::ReducerAndLogger made_;
};

}  // namespace bench
