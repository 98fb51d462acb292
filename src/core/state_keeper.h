// What an accelerator does for checkpoints: collects the parts of a training state, and saves and
// loads them with the other ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "accelerate/checkpoint.h"
#include "accelerate/communicator.h"
#include "accelerate/process_state.h"
#include "checkpoint/state/async_saver.h"
#include "checkpoint/state/host_buffers.h"
#include "checkpoint/state/state_agreement.h"
#include "checkpoint/state/state_part.h"
#include "checkpoint/state/state_parts.h"
#include "checkpoint/state/state_saving.h"
#include "core/training_state.h"

namespace accelerate {

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
  // Waits for the writer and releases the memory that the next save would copy into.
  void free_memory();
  // Throws UsageError for one that cannot be.
  void set_iteration(int64_t iteration);
  // Whether this rank writes what all have in common.
  bool is_writer() const { return group().is_leader; }

 private:
  checkpoint::SaveGroup group() const;
  std::filesystem::path series_folder() const { return project_.project_dir / "checkpoints"; }
  checkpoint::SaveTarget target(const std::filesystem::path& directory) const;
  void require_directory(const std::filesystem::path& directory, const char* where) const;
  void require_idle(const SaveOptions& options) const;
  // Throws CheckpointError if there is one of the series with the number of `next` or a higher one.
  void require_last_of_series(const std::filesystem::path& next) const;
  // In what all ranks must agree.
  std::vector<comm::Fact> facts_of_save(const TrainingState& training,
                                        const std::filesystem::path& directory,
                                        const SaveOptions& options) const;
  void run_hooks(std::vector<ModelToSave>& models, const std::filesystem::path& directory) const;
  // Collective; see there.
  void settle_last_save();
  Communicator& background_ranks();

  void take_snapshot(checkpoint::SaveJob& job, const TrainingState& training,
                     const SaveOptions& options);
  SaveTicket write_beside(std::shared_ptr<checkpoint::SaveJob> job);
  checkpoint::StateParts parts_to_load(const TrainingState& training,
                                       const std::filesystem::path& directory);
  std::unique_ptr<checkpoint::StatePart> iteration_of_project();
  checkpoint::OptimizersElsewhere optimizers_elsewhere() const;

  ProcessState state_;
  std::shared_ptr<Communicator> ranks_;
  ProjectOptions project_;
  ProcessGroupOptions group_options_;
  std::vector<CheckpointFunctions> objects_;
  std::shared_ptr<HookList<SaveStateHook>> save_hooks_ =
      std::make_shared<HookList<SaveStateHook>>();
  std::shared_ptr<HookList<LoadStateHook>> load_hooks_ =
      std::make_shared<HookList<LoadStateHook>>();
  // Of the writing threads alone, so that they never stand in the way of the training. Null before
  // the first save beside it.
  std::unique_ptr<Communicator> background_ranks_;
  std::atomic<bool> background_is_lost_ = false;  // that group has failed on this rank
  checkpoint::HostBuffers buffers_;               // of the copies that the writer reads
  checkpoint::AsyncSaver saver_;                  // last: its thread uses what stands above
};

}  // namespace accelerate
