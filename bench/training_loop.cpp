#include "training_loop.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace bench {
namespace {

accelerate::TensorDataset dataset_of(const TrainingData& data) {
  return accelerate::TensorDataset(data.inputs, data.labels);
}

}  // namespace

PreparedLoop::PreparedLoop(accelerate::Accelerator& accelerator, const Task& task)
    : PreparedLoop(accelerator, task, make_model(task)) {}

PreparedLoop::PreparedLoop(accelerate::Accelerator& accelerator, const Task& task, Mlp mlp)
    : accelerator_(accelerator),
      model_(accelerator.prepare(mlp)),
      optimizer_(accelerator.prepare(make_optimizer(task, mlp->parameters()))),
      loader_(accelerator.prepare(accelerate::data_loader(
          dataset_of(make_data(task, accelerator.num_processes())),
          {.batch_size = task.batch_size, .shuffle = true, .seed = task.seed}))) {}

// What `for (auto& batch : loader)` does, one turn of it a call.
void PreparedLoop::step() {
  if (!batch_ || *batch_ == loader_.end()) batch_.emplace(loader_.begin());
  auto& batch = **batch_;
  optimizer_.zero_grad();
  auto loss = torch::nn::functional::cross_entropy(model_(batch.data), batch.target);
  accelerator_.backward(loss);
  optimizer_.step();
  loss_ = loss;
  ++*batch_;
}

HandBatches::HandBatches(const Task& task, int rank, int world_size)
    : task_(task), data_(make_data(task, world_size)), rank_(rank), world_size_(world_size) {}

TrainingData HandBatches::next() {
  if (!order_.defined() || step_ == task_.steps_a_pass) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(task_.seed + next_epoch_++);
    order_ = torch::randperm(data_.inputs.size(0), generator, torch::kLong);
    step_ = 0;
  }
  const int64_t first = (step_++ * world_size_ + rank_) * task_.batch_size;
  const at::Tensor rows = order_.slice(0, first, first + task_.batch_size);
  return {data_.inputs.index_select(0, rows), data_.labels.index_select(0, rows)};
}

void make_in_changing_order(std::vector<std::function<void()>> makers, int round) {
  const auto first = round % static_cast<int>(makers.size());
  std::rotate(makers.begin(), makers.begin() + first, makers.end());
  for (const auto& make : makers) make();
}

void require_equal_parameters(const TrainingLoop& first, const TrainingLoop& second) {
  const std::vector<at::Tensor> left = first.parameters();
  const std::vector<at::Tensor> right = second.parameters();
  if (left.size() != right.size()) throw std::runtime_error("the loops train different models");
  for (size_t i = 0; i < left.size(); ++i) {
    if (at::allclose(left[i], right[i], /*rtol=*/1e-4, /*atol=*/1e-5)) continue;
    throw std::runtime_error("the loops disagree on parameter " + std::to_string(i) + " by up to " +
                             std::to_string((left[i] - right[i]).abs().max().item<double>()));
  }
}

}  // namespace bench
