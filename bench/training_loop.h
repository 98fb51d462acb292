// A training loop that can be run step by step.
#pragma once

#include <ATen/ATen.h>
#include <accelerate/accelerate.h>

#include <functional>
#include <optional>
#include <vector>

#include "mlp.h"

namespace bench {

class TrainingLoop {
 public:
  virtual ~TrainingLoop() = default;
  // The next batch, forward, backward, update. Begins a new pass over the data where one ended.
  virtual void step() = 0;
  virtual std::vector<at::Tensor> parameters() const = 0;
  // Of the latest step.
  double loss() const { return loss_.item<double>(); }

 protected:
  at::Tensor loss_;
};

// The loop that a user of the library writes. `accelerator` must outlive it.
class PreparedLoop final : public TrainingLoop {
 public:
  PreparedLoop(accelerate::Accelerator& accelerator, const Task& task);
  void step() override;
  std::vector<at::Tensor> parameters() const override { return model_.parameters(); }

 private:
  using Loader = accelerate::DataLoader<accelerate::TensorDataset>;

  PreparedLoop(accelerate::Accelerator& accelerator, const Task& task, Mlp mlp);

  accelerate::Accelerator& accelerator_;
  accelerate::PreparedModel<MlpImpl> model_;
  accelerate::PreparedOptimizer optimizer_;
  Loader loader_;
  std::optional<Loader::Iterator> batch_;
};

// The batches of one rank in the order in which a prepared loader gives them, cut by hand.
class HandBatches {
 public:
  HandBatches(const Task& task, int rank, int world_size);

  // The next batch; shuffles where a pass begins.
  TrainingData next();

 private:
  Task task_;
  TrainingData data_;
  at::Tensor order_;
  int rank_;
  int world_size_;
  int64_t step_ = 0;  // in the pass
  uint64_t next_epoch_ = 0;
};

// Calls all of `makers`, beginning with another one in each round. Where a loop's tensors lie in
// memory can cost it some percent, and allocators give the same places to the same order of
// requests: so each loop gets each place in turn.
void make_in_changing_order(std::vector<std::function<void()>> makers, int round);

// Throws unless both loops have come to equal parameters, but for the rounding of fused updates.
void require_equal_parameters(const TrainingLoop& first, const TrainingLoop& second);

}  // namespace bench
