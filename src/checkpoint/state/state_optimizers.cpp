#include <torch/optim/optimizer.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/optimizer_state.h"
#include "checkpoint/state/optimizer_pieces.h"
#include "checkpoint/state/state_parts.h"
#include "files/dcp/dcp_folder.h"

namespace accelerate::checkpoint {
namespace {

constexpr const char* kOptimizerStem = "optimizer";
constexpr const char* kOptimizerExtension = ".bin";
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

// The steps that an optimizer has done, by what it keeps for each parameter; none if it counts
// none, as SGD.
std::optional<int64_t> steps_done(const TorchValue& state) {
  std::optional<int64_t> most;
  for (const auto& [parameter, own] : state.as_dict().at("state").as_dict().entries()) {
    const TorchValue* step = own.as_dict().find("step");
    if (step == nullptr || step->is_none()) continue;
    const double count = step->is_tensor() ? step->as_tensor().item<double>() : step->as_number();
    most = std::max(most.value_or(0), static_cast<int64_t>(count));
  }
  return most;
}

class OptimizersPart final : public StatePart {
 public:
  OptimizersPart(std::vector<PreparedOptimizer> optimizers, std::vector<Scheduler> schedulers,
                 const OptimizersElsewhere& elsewhere, int rank, ParameterNames names)
      : optimizers_(std::move(optimizers)),
        schedulers_(std::move(schedulers)),
        rank_(rank),
        names_(std::move(names)) {
    for (size_t i = 0; i < optimizers_.size(); ++i) {
      if (!elsewhere.contains(&optimizers_[i].optimizer())) with_files_.push_back(i);
    }
  }

  void save(Snapshot& snapshot) const override {
    std::vector<int64_t> steps;
    for (const PreparedOptimizer& optimizer : optimizers_) steps.push_back(optimizer.step_count());
    snapshot.facts()[kSteps] = steps;
    TensorsFile pieces;
    bool has_layout = false;
    for (size_t i = 0; i < with_files_.size(); ++i) {
      const PreparedOptimizer& prepared = optimizers_[with_files_[i]];
      const std::string name = numbered_file(kOptimizerStem, i, kOptimizerExtension);
      const auto layout = prepared.strategy().layout();
      if (!layout) {
        if (snapshot.writes_shared_files()) snapshot.add(name, state_of(with_files_[i]));
        continue;
      }
      has_layout = true;
      const TorchValue state = state_of(with_files_[i]);
      if (snapshot.writes_shared_files()) snapshot.add(name, groups_by_parameters(state, *layout));
      add_pieces(state, i, {prepared.optimizer(), prepared.parameters(), *layout}, pieces);
    }
    // Without tensors too: whoever loads it knows by that that the rank had none.
    if (has_layout && snapshot.takes_pieces_of(rank_))
      snapshot.add(pieces_file(rank_), std::move(pieces));
  }

  void check(StateReader& reader) override {
    const size_t saved = saved_optimizers(reader);
    reader.require_count("optimizers", saved, with_files_.size());
    if (const auto found = reader.facts().find(kSteps); found != reader.facts().end()) {
      const auto steps = found->get<std::vector<int64_t>>();
      for (size_t i = 0; i < steps.size() && i < optimizers_.size(); ++i) steps_[i] = steps[i];
    }
    for (size_t i = 0; i < with_files_.size() && i < saved; ++i) {
      const std::string name = is_dcp(reader, i)
                                   ? files::dcp_optimizer_folder(i)
                                   : numbered_file(kOptimizerStem, i, kOptimizerExtension);
      TorchValue saved_state = saved_state_of(i, name, reader);
      // Before it is cut: a rank may have no part of any parameter.
      if (!reader.is_ours()) {
        if (const auto steps = steps_done(saved_state)) steps_[with_files_[i]] = *steps;
      }
      TorchValue state = state_for_groups(i, std::move(saved_state), name, reader);
      check_optimizer_state(optimizers_[with_files_[i]].optimizer(), state, reader.where(name));
      states_.emplace_back(reader.where(name), std::move(state));
    }
  }

  void apply() override {
    for (size_t i = 0; i < states_.size(); ++i) {
      load_optimizer_state(optimizers_[with_files_[i]].optimizer(), states_[i].second,
                           states_[i].first);
    }
    for (const auto& [index, steps] : steps_) optimizers_[index].set_step_count(steps);
  }

 private:
  // FSDP in Python leaves a folder in place of a file.
  static bool is_dcp(const StateReader& reader, size_t number) {
    const std::string file = numbered_file(kOptimizerStem, number, kOptimizerExtension);
    return !reader.is_ours() && !reader.has(file) &&
           files::is_dcp_folder(reader.where(files::dcp_optimizer_folder(number)));
  }

  static size_t saved_optimizers(const StateReader& reader) {
    const size_t files = reader.count(kOptimizerStem, kOptimizerExtension);
    size_t folders = 0;
    while (files == 0 && is_dcp(reader, folders)) ++folders;
    return files + folders;
  }

  // What the file of that number, or the folder, holds.
  TorchValue saved_state_of(size_t file, const std::string& name, const StateReader& reader) const {
    if (!is_dcp(reader, file)) return reader.archive(name);
    const PreparedOptimizer& prepared = optimizers_[with_files_[file]];
    const auto layout = prepared.strategy().layout();
    const OptimizerLayout whole = layout ? *layout : whole_layout(prepared.optimizer());
    return read_dcp_optimizer(reader.where(name), prepared.parameters(), whole.group_sizes, names_);
  }

  // The same as the groups of its optimizer see it.
  TorchValue state_for_groups(size_t file, TorchValue state, const std::string& name,
                              const StateReader& reader) const {
    const PreparedOptimizer& prepared = optimizers_[with_files_[file]];
    const auto layout = prepared.strategy().layout();
    if (!layout && !has_pieces(reader)) return state;
    return SavedOptimizerState(std::move(state), file, reader)
        .state_for({prepared.optimizer(), prepared.parameters(),
                    layout ? *layout : whole_layout(prepared.optimizer())},
                   reader.where(name));
  }

  TorchValue state_of(size_t index) const {
    const torch::optim::Optimizer& optimizer = optimizers_[index].optimizer();
    try {
      return optimizer_state(optimizer, {.group_entries = initial_rates(optimizer, schedulers_)});
    } catch (const CheckpointError& error) {
      throw CheckpointError(
          {.what = "optimizer " + std::to_string(index) + ": " + error.message(),
           .where = error.where(),
           .hint = "give the class state_dict() and load_state_dict() and pass the optimizer to "
                   "register_for_checkpointing(), or CheckpointFunctions with .optimizer = &it"});
    }
  }

  std::vector<PreparedOptimizer> optimizers_;
  std::vector<Scheduler> schedulers_;
  int rank_;
  ParameterNames names_;
  std::vector<size_t> with_files_;  // which of them have a file, in the order of the files
  std::vector<std::pair<std::string, TorchValue>> states_;  // file, contents
  std::map<size_t, int64_t> steps_;  // by the number of the optimizer, where they are known
};

}  // namespace

std::unique_ptr<StatePart> optimizers_part(std::vector<PreparedOptimizer> optimizers,
                                           std::vector<Scheduler> schedulers,
                                           const OptimizersElsewhere& elsewhere, int rank,
                                           ParameterNames names) {
  return std::make_unique<OptimizersPart>(std::move(optimizers), std::move(schedulers), elsewhere,
                                          rank, std::move(names));
}

}  // namespace accelerate::checkpoint
