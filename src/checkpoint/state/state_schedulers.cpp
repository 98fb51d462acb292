#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "checkpoint/archive/state_value_copy.h"
#include "checkpoint/state/state_parts.h"

namespace accelerate::checkpoint {
namespace {

constexpr const char* kSchedulerStem = "scheduler";
constexpr const char* kSchedulerExtension = ".bin";

class SchedulersPart final : public StatePart {
 public:
  explicit SchedulersPart(std::vector<Scheduler> schedulers) : schedulers_(std::move(schedulers)) {}

  void save(Snapshot& snapshot) const override {
    if (!snapshot.writes_shared_files()) return;
    for (size_t i = 0; i < schedulers_.size(); ++i) {
      snapshot.add(numbered_file(kSchedulerStem, i, kSchedulerExtension),
                   to_torch_value(schedulers_[i].state_dict()));
    }
  }

  void check(StateReader& reader) override {
    const size_t saved = reader.count(kSchedulerStem, kSchedulerExtension);
    reader.require_count("schedulers", saved, schedulers_.size());
    for (size_t i = 0; i < schedulers_.size() && i < saved; ++i) {
      const std::string name = numbered_file(kSchedulerStem, i, kSchedulerExtension);
      StateDict state = to_state_dict(reader.archive(name));
      try {
        schedulers_[i].check_state_dict(state);
      } catch (const CheckpointError& error) {
        throw CheckpointError(
            {.what = error.message(), .where = reader.where(name), .hint = error.hint()});
      }
      states_.push_back(std::move(state));
      files_.push_back(reader.where(name));
    }
  }

  // A class of the user tells only now whether it takes its state.
  void try_apply() override {
    for (size_t i = 0; i < states_.size(); ++i) {
      if (!schedulers_[i].is_adapted()) continue;
      before_.emplace_back(i, cloned(schedulers_[i].state_dict()));
      try {
        schedulers_[i].load_state_dict(states_[i]);
      } catch (const std::exception& error) {
        throw CheckpointError(
            {.what = "scheduler " + std::to_string(i) + " refuses its state: " + error.what(),
             .where = files_[i],
             .hint = "prepare the schedulers that were saved, in the same order"});
      }
    }
  }

  void undo() override {
    for (const auto& [index, state] : before_) {
      try {
        schedulers_[index].load_state_dict(state);
      } catch (const std::exception& error) {
        log(LogLevel::kError, "scheduler " + std::to_string(index) +
                                  " could not be put back into its earlier state: " + error.what());
      }
    }
    before_.clear();
  }

  void apply() override {
    for (size_t i = 0; i < states_.size(); ++i) {
      if (!schedulers_[i].is_adapted()) schedulers_[i].load_state_dict(states_[i]);
    }
  }

 private:
  std::vector<Scheduler> schedulers_;
  std::vector<StateDict> states_;
  std::vector<std::string> files_;
  std::vector<std::pair<size_t, StateDict>> before_;  // by the number of the scheduler
};

}  // namespace

std::unique_ptr<StatePart> schedulers_part(std::vector<Scheduler> schedulers) {
  return std::make_unique<SchedulersPart>(std::move(schedulers));
}

}  // namespace accelerate::checkpoint
