#include <torch/optim/optimizer.h>

#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/optimizer_state.h"
#include "checkpoint/state_parts.h"

namespace accelerate::checkpoint {
namespace {

constexpr const char* kStem = "optimizer";
constexpr const char* kExtension = ".bin";
constexpr const char* kSteps = "optimizer_steps";

// Python's schedulers look for the initial rates in the groups.
std::vector<TorchDict> initial_rates(const torch::optim::Optimizer& optimizer,
                                     const std::vector<Scheduler>& schedulers) {
  for (const Scheduler& scheduler : schedulers) {
    if (&scheduler.optimizer() != &optimizer) continue;
    const StateDict state = scheduler.state_dict();
    const StateValue* rates = state.find("base_lrs");
    if (rates == nullptr) continue;
    std::vector<TorchDict> entries;
    for (const double rate : rates->as_numbers()) entries.push_back({{"initial_lr", rate}});
    if (entries.size() == optimizer.param_groups().size()) return entries;
  }
  return {};
}

class OptimizersPart final : public StatePart {
 public:
  OptimizersPart(std::vector<PreparedOptimizer> optimizers, std::vector<Scheduler> schedulers)
      : optimizers_(std::move(optimizers)), schedulers_(std::move(schedulers)) {}

  void save(Snapshot& snapshot) const override {
    std::vector<int64_t> steps;
    for (const PreparedOptimizer& optimizer : optimizers_) steps.push_back(optimizer.step_count());
    snapshot.facts()[kSteps] = steps;
    if (!snapshot.writes_shared_files()) return;
    for (size_t i = 0; i < optimizers_.size(); ++i) {
      const torch::optim::Optimizer& optimizer = optimizers_[i].optimizer();
      snapshot.add(
          numbered_file(kStem, i, kExtension),
          optimizer_state(optimizer, {.group_entries = initial_rates(optimizer, schedulers_)}));
    }
  }

  void check(StateReader& reader) override {
    const size_t saved = reader.count(kStem, kExtension);
    reader.require_count("optimizers", saved, optimizers_.size());
    if (const auto found = reader.facts().find(kSteps); found != reader.facts().end()) {
      steps_ = found->get<std::vector<int64_t>>();
    }
    for (size_t i = 0; i < optimizers_.size() && i < saved; ++i) {
      const std::string name = numbered_file(kStem, i, kExtension);
      TorchValue state = reader.archive(name);
      check_optimizer_state(optimizers_[i].optimizer(), state, reader.where(name));
      states_.emplace_back(reader.where(name), std::move(state));
    }
  }

  void apply() override {
    for (size_t i = 0; i < states_.size(); ++i) {
      load_optimizer_state(optimizers_[i].optimizer(), states_[i].second, states_[i].first);
      if (i < steps_.size()) optimizers_[i].set_step_count(steps_[i]);
    }
  }

 private:
  std::vector<PreparedOptimizer> optimizers_;
  std::vector<Scheduler> schedulers_;
  std::vector<std::pair<std::string, TorchValue>> states_;  // file, contents
  std::vector<int64_t> steps_;
};

}  // namespace

std::unique_ptr<StatePart> optimizers_part(std::vector<PreparedOptimizer> optimizers,
                                           std::vector<Scheduler> schedulers) {
  return std::make_unique<OptimizersPart>(std::move(optimizers), std::move(schedulers));
}

}  // namespace accelerate::checkpoint
