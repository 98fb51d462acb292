// What an accelerator does for checkpoints: collects the parts of a training state, and saves and
// loads them with the other ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "accelerate/accumulation.h"
#include "accelerate/checkpoint.h"
#include "accelerate/communicator.h"
#include "accelerate/detail/followed_loader.h"
#include "accelerate/detail/prepared_models.h"
#include "accelerate/grad_scaler.h"
#include "accelerate/prepared_optimizer.h"
#include "accelerate/process_control.h"
#include "accelerate/process_state.h"
#include "accelerate/schedulers.h"
#include "checkpoint/async_saver.h"
#include "checkpoint/state_part.h"
#include "checkpoint/state_saving.h"
#include "core/window_weights.h"

namespace accelerate {

// The objects of one training loop, as they are now.
struct TrainingState {
  std::vector<detail::PreparedModels::Entry> models{};
  std::vector<PreparedOptimizer> optimizers{};
  std::vector<Scheduler> schedulers{};
  std::vector<std::shared_ptr<detail::FollowedLoader>> loaders{};
  GradScaler* scaler = nullptr;  // null where losses are not scaled
  detail::AccumulationWindow* window = nullptr;
  WindowWeights* weights = nullptr;
  Trigger* trigger = nullptr;
  bool buffers_differ = false;  // ranks do not take over the buffers of rank 0
};

// Functions that were registered, each with a number to find it by.
template <class Function>
struct HookList {
  std::vector<std::pair<int64_t, Function>> hooks{};
  int64_t next_number = 0;
};

// One for each accelerator. Called by the thread of the training.
class StateKeeper {
 public:
  // Throws UsageError for options that do not go together.
  StateKeeper(ProcessState state, std::shared_ptr<Communicator> ranks, ProjectOptions project,
              const ProcessGroupOptions& group_options);

  // See Accelerator. Collective.
  SaveTicket save(const TrainingState& training, const std::filesystem::path& directory,
                  const SaveOptions& options);
  std::filesystem::path load(const TrainingState& training, const std::filesystem::path& directory,
                             const LoadOptions& options);

  void add_object(CheckpointFunctions object) { objects_.push_back(std::move(object)); }
  HookHandle add_hook(SaveStateHook hook);
  HookHandle add_hook(LoadStateHook hook);

  const ProjectOptions& project() const { return project_; }
  void set_iteration(int64_t iteration) { project_.iteration = iteration; }
  // Whether this rank writes what all have in common.
  bool is_writer() const { return group().is_leader; }

 private:
  checkpoint::SaveGroup group() const;
  std::filesystem::path series_folder() const { return project_.project_dir / "checkpoints"; }
  checkpoint::SaveTarget target(const std::filesystem::path& directory) const;
  void require_ready(const SaveOptions& options);
  void take_snapshot(checkpoint::SaveJob& job, const TrainingState& training,
                     const SaveOptions& options) const;
  checkpoint::StateParts parts_to_load(const TrainingState& training,
                                       const std::filesystem::path& directory) const;
  Communicator& background_ranks();
  int64_t iteration_after(const checkpoint::StateReader& loaded) const;

  ProcessState state_;
  std::shared_ptr<Communicator> ranks_;
  ProjectOptions project_;
  ProcessGroupOptions group_options_;
  std::vector<CheckpointFunctions> objects_;
  std::shared_ptr<HookList<SaveStateHook>> save_hooks_ =
      std::make_shared<HookList<SaveStateHook>>();
  std::shared_ptr<HookList<LoadStateHook>> load_hooks_ =
      std::make_shared<HookList<LoadStateHook>>();
  // Of the writing threads alone, so that they never stand in the way of the training.
  std::unique_ptr<Communicator> background_ranks_;
  checkpoint::AsyncSaver saver_;  // last: its thread uses what stands above
};

}  // namespace accelerate
