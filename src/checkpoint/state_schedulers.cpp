#include <torch/optim/optimizer.h>

#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "checkpoint/state_parts.h"

namespace accelerate::checkpoint {
namespace {

constexpr const char* kStem = "scheduler";
constexpr const char* kExtension = ".bin";

// A schedule and the options of the groups that it moves, as they were.
class Restored {
 public:
  explicit Restored(Scheduler& scheduler) : scheduler_(scheduler), state_(scheduler.state_dict()) {
    for (const auto& group : scheduler.optimizer().param_groups()) {
      options_.push_back(group.has_options() ? group.options().clone() : nullptr);
    }
  }
  ~Restored() {
    scheduler_.load_state_dict(state_);
    auto& groups = scheduler_.optimizer().param_groups();
    for (size_t i = 0; i < groups.size(); ++i) {
      if (options_[i]) groups[i].set_options(std::move(options_[i]));
    }
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  Scheduler& scheduler_;
  StateDict state_;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options_;
};

class SchedulersPart final : public StatePart {
 public:
  explicit SchedulersPart(std::vector<Scheduler> schedulers) : schedulers_(std::move(schedulers)) {}

  void save(Snapshot& snapshot) const override {
    if (!snapshot.writes_shared_files()) return;
    for (size_t i = 0; i < schedulers_.size(); ++i) {
      snapshot.add(numbered_file(kStem, i, kExtension),
                   to_torch_value(schedulers_[i].state_dict()));
    }
  }

  void check(StateReader& reader) override {
    const size_t saved = reader.count(kStem, kExtension);
    reader.require_count("schedulers", saved, schedulers_.size());
    for (size_t i = 0; i < schedulers_.size() && i < saved; ++i) {
      const std::string name = numbered_file(kStem, i, kExtension);
      StateDict state = to_state_dict(reader.archive(name));
      try {
        // Only the schedule itself knows whether it can go on from there.
        const Restored afterwards(schedulers_[i]);
        schedulers_[i].load_state_dict(state);
      } catch (const CheckpointError& error) {
        throw CheckpointError(
            {.what = error.message(), .where = reader.where(name), .hint = error.hint()});
      }
      states_.push_back(std::move(state));
    }
  }

  void apply() override {
    for (size_t i = 0; i < states_.size(); ++i) schedulers_[i].load_state_dict(states_[i]);
  }

 private:
  std::vector<Scheduler> schedulers_;
  std::vector<StateDict> states_;
};

class ScalerPart final : public StatePart {
 public:
  explicit ScalerPart(GradScaler* scaler) : scaler_(scaler) {}

  void save(Snapshot& snapshot) const override {
    if (scaler_ == nullptr || !snapshot.writes_shared_files()) return;
    snapshot.add(kFile, to_torch_value(scaler_->state_dict()));
  }

  void check(StateReader& reader) override {
    reader.require_count("gradient scalers", reader.has(kFile) ? 1 : 0, scaler_ ? 1 : 0);
    if (scaler_ == nullptr || !reader.has(kFile)) return;
    state_ = to_state_dict(reader.archive(kFile));
    try {
      GradScaler(scaler_->options()).load_state_dict(*state_);
    } catch (const CheckpointError& error) {
      throw CheckpointError(
          {.what = error.message(), .where = reader.where(kFile), .hint = error.hint()});
    }
  }

  void apply() override {
    if (state_) scaler_->load_state_dict(*state_);
  }

 private:
  static constexpr const char* kFile = "scaler.pt";

  GradScaler* scaler_;
  std::optional<StateDict> state_;
};

}  // namespace

std::unique_ptr<StatePart> schedulers_part(std::vector<Scheduler> schedulers) {
  return std::make_unique<SchedulersPart>(std::move(schedulers));
}

std::unique_ptr<StatePart> scaler_part(GradScaler* scaler) {
  return std::make_unique<ScalerPart>(scaler);
}

}  // namespace accelerate::checkpoint
