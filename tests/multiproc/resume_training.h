// A training that can be left after any micro-batch and taken up again.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "multiproc/state_folder.h"
#include "multiproc/training.h"

namespace accelerate::test {

struct ResumeCase {
  std::string optimizer = "adamw";
  int64_t accumulation = 1;
  int workers = 0;
  bool dropout = true;
  bool weighted = false;
  bool dispatch = false;
  bool fp16 = false;
  bool gpu = tests_on_gpu();  // all ranks on one
  DdpOptions ddp{};
};

struct DropoutNet : Net {
  explicit DropoutNet(bool dropout)
      : first(register_module("first", torch::nn::Linear(6, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        drop(register_module("drop", torch::nn::Dropout(dropout ? 0.4 : 0.0))),
        second(register_module("second", torch::nn::Linear(8, 3))) {}
  at::Tensor forward(at::Tensor input) override {
    return second(drop(torch::tanh(norm(first(input)))));
  }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear second;
};

inline std::unique_ptr<torch::optim::Optimizer> optimizer_of(const std::string& name,
                                                             std::vector<at::Tensor> parameters) {
  namespace optim = torch::optim;
  if (name == "sgd") {
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.1).momentum(0.9));
  }
  if (name == "adam") {
    return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.01).amsgrad(true));
  }
  if (name == "adagrad") return std::make_unique<optim::Adagrad>(parameters, 0.05);
  if (name == "rmsprop") {
    return std::make_unique<optim::RMSprop>(
        parameters, optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
  }
  return std::make_unique<optim::AdamW>(parameters, 0.01);
}

// Full batches for BatchNorm, but not as many as ranks: some samples are repeated.
inline TensorDataset resume_data(const ResumeCase& what = {}) {
  const StepData data = host_data_of_step(3, what.dispatch ? 24 : 22);
  return {data.input, data.target};
}

// One run of the training on this rank, from its beginning or, once `accelerator` has loaded a
// state, from there.
class ResumeTraining {
 public:
  // Another seed gives other weights, another order of the data and other dropout.
  ResumeTraining(const ResumeCase& what, uint64_t seed, const ProjectOptions& project = {})
      : case_(what), accelerator_(options(what, project)) {
    torch::manual_seed(seed);
    auto net = std::make_shared<DropoutNet>(what.dropout);
    optimizer_ = optimizer_of(what.optimizer, net->parameters());
    Scheduler schedule =
        get_scheduler("linear", *optimizer_, {.warmup_steps = 3, .training_steps = 200});
    auto batches = data_loader(resume_data(what),
                               {.batch_size = 2, .shuffle = true, .num_workers = what.workers});
    model_.emplace(accelerator_.prepare(net));
    prepared_.emplace(accelerator_.prepare(*optimizer_));
    scheduler_.emplace(accelerator_.prepare(schedule));
    loader_.emplace(accelerator_.prepare(batches));
    set_seed(seed, {.device_specific = true, .rank = accelerator_.process_index()});
  }

  Accelerator& accelerator() { return accelerator_; }
  std::shared_ptr<DropoutNet> net() { return model_->module(); }
  PreparedOptimizer& optimizer() { return *prepared_; }
  // In which gradients travel; they are summed up in another order where this is another.
  std::vector<int64_t> gradient_order() const {
    return model_->strategy()->exchange_memory()->state().gradient_order;
  }

  // Runs until `end` micro-batches were done since the first one of all runs, of which `done` lie
  // behind. Calls `after(n)` where n are done. Returns the loss of each.
  std::vector<double> train(
      int done, int end, const std::function<void(int)>& after = [](int) {}) {
    std::vector<double> losses;
    while (done < end) {
      for (auto& batch : *loader_) {
        losses.push_back(step(batch));
        after(++done);
        if (done == end) break;
      }
    }
    return losses;
  }

  // Everything that later steps depend on.
  std::vector<double> fingerprint() {
    std::vector<double> all = flat(net()->parameters());
    const auto append = [&](const std::vector<double>& more) {
      all.insert(all.end(), more.begin(), more.end());
    };
    // Without windows other ranks take over the buffers of rank 0 before they use them.
    if (accelerator_.is_main_process() || case_.accumulation > 1) append(flat(net()->buffers()));
    append(flat(gradients(net()->parameters())));
    append(scheduler_->last_lr());
    append({static_cast<double>(prepared_->step_count())});
    if (case_.fp16) append({accelerator_.scaler()->scale_factor()});
    append(flat({torch::rand({4}), torch::rand({4}, accelerator_.device())}));
    return all;
  }

 private:
  static AcceleratorOptions options(const ResumeCase& what, const ProjectOptions& project) {
    AcceleratorOptions all = on_cpu();
    all.cpu = !what.gpu;
    all.process_group.cuda_backend = test_cuda_backend();
    all.gradient_accumulation = {.steps = what.accumulation};
    all.project = project;
    all.data_loader.dispatch_batches = what.dispatch;
    if (what.fp16) all.mixed_precision = MixedPrecision::kFp16;
    all.grad_scaler = {.init_scale = 1024, .growth_interval = 2};
    all.ddp = what.ddp;
    return all;
  }

  template <class Batch>
  double step(const Batch& batch) {
    const auto micro_batch = accelerator_.accumulate(*model_);
    const at::Tensor loss = loss_of((*model_)(batch.data), batch.target);
    if (case_.weighted) {
      accelerator_.backward(loss, {.weight = 1.0 + batch.data.abs().sum().template item<double>()});
    } else {
      accelerator_.backward(loss);
    }
    prepared_->step();
    scheduler_->step();
    prepared_->zero_grad();
    return loss.item<double>();
  }

  using Loader = decltype(data_loader(resume_data()));

  ResumeCase case_;
  Accelerator accelerator_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<PreparedModel<DropoutNet>> model_;
  std::optional<PreparedOptimizer> prepared_;
  std::optional<PreparedScheduler> scheduler_;
  std::optional<Loader> loader_;
};

}  // namespace accelerate::test
