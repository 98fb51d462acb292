#include "core/accelerator_state.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <string>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "accelerate/model_files.h"
#include "checkpoint/rng_part.h"
#include "checkpoint/state_agreement.h"
#include "checkpoint/state_loading.h"
#include "checkpoint/state_parts.h"
#include "core/accelerator_state_window.h"
#include "files/checkpoint_directory.h"
#include "files/checkpoint_names.h"

namespace accelerate {
namespace {

constexpr const char* kIteration = "iteration";

void require_usable(const ProjectOptions& project) {
  const auto refuse = [](const std::string& what, const std::string& hint) {
    throw UsageError({.what = what, .where = "ProjectOptions", .hint = hint});
  };
  if (project.automatic_checkpoint_naming && project.project_dir.empty()) {
    refuse("automatic_checkpoint_naming without a project_dir", "set project_dir");
  }
  if (project.total_limit && *project.total_limit < 1) {
    refuse("total_limit must be 1 or more, got " + std::to_string(*project.total_limit),
           "leave it out to keep all checkpoints");
  }
  if (project.iteration < 0) {
    refuse("iteration must be 0 or more, got " + std::to_string(project.iteration),
           "leave it out to begin at 0");
  }
}

template <class Function>
HookHandle add_to(const std::shared_ptr<HookList<Function>>& list, Function hook) {
  const int64_t number = list->next_number++;
  list->hooks.emplace_back(number, std::move(hook));
  return HookHandle([weak = std::weak_ptr(list), number] {
    if (const auto still_there = weak.lock()) {
      std::erase_if(still_there->hooks, [&](const auto& entry) { return entry.first == number; });
    }
  });
}

}  // namespace

StateKeeper::StateKeeper(ProcessState state, std::shared_ptr<Communicator> ranks,
                         ProjectOptions project, const ProcessGroupOptions& group_options)
    : state_(std::move(state)),
      ranks_(std::move(ranks)),
      project_(std::move(project)),
      group_options_(group_options) {
  require_usable(project_);
  if (project_.logging_dir.empty()) project_.logging_dir = project_.project_dir;
}

HookHandle StateKeeper::add_hook(SaveStateHook hook) {
  return add_to(save_hooks_, std::move(hook));
}
HookHandle StateKeeper::add_hook(LoadStateHook hook) {
  return add_to(load_hooks_, std::move(hook));
}

checkpoint::SaveGroup StateKeeper::group() const {
  if (!project_.save_on_each_node) return {.id = 0, .is_leader = state_.is_main_process()};
  return {.id = state_.node_rank(), .is_leader = state_.is_local_main_process()};
}

checkpoint::SaveTarget StateKeeper::target(const std::filesystem::path& directory) const {
  if (!directory.empty()) return {.directory = directory};
  const auto folder = series_folder() / files::numbered_name(project_.iteration);
  if (std::filesystem::exists(folder)) {
    throw CheckpointError({.what = "there is a checkpoint of this number already",
                           .where = folder.string(),
                           .hint = "load_state() sets the next number, and so does "
                                   "set_save_iteration()"});
  }
  return {.directory = folder, .total_limit = project_.total_limit};
}

// Throws what must keep all ranks from saving.
void StateKeeper::require_ready(const SaveOptions& options) {
  if (saver_.busy() && options.while_saving == WhileSaving::kRefuse) {
    throw UsageError({.what = "the last checkpoint is still being written",
                      .where = "save_state",
                      .hint = "wait for its ticket, or pass {.while_saving = WhileSaving::kWait}"});
  }
  saver_.wait();
  if (const auto error = saver_.take_error()) std::rethrow_exception(error);
}

void StateKeeper::take_snapshot(checkpoint::SaveJob& job, const TrainingState& training,
                                const SaveOptions& options) const {
  std::vector<ModelToSave> models;
  for (const auto& entry : training.models) {
    models.push_back({.module = entry.module, .weights = get_state_dict(*entry.module)});
  }
  for (const auto& [number, hook] : save_hooks_->hooks) hook(models, job.directory());

  checkpoint::StateParts parts;
  parts.push_back(checkpoint::save_models(std::move(models), options.safe_serialization));
  parts.push_back(checkpoint::optimizers_part(training.optimizers, training.schedulers));
  parts.push_back(checkpoint::schedulers_part(training.schedulers));
  parts.push_back(checkpoint::scaler_part(training.scaler));
  parts.push_back(checkpoint::loaders_part(training.loaders));
  parts.push_back(checkpoint::objects_part(objects_));
  parts.push_back(window_part(training, state_, options.gradients));
  parts.push_back(checkpoint::rng_part(state_.rank(), state_.device(), training.window->step()));
  for (const auto& part : parts) part->save(job.snapshot());
  job.snapshot().facts()[kIteration] = project_.iteration;
  if (!training.optimizers.empty()) job.set_step(training.optimizers.front().step_count());
  if (options.async) job.snapshot().copy_to_host();
}

Communicator& StateKeeper::background_ranks() {
  if (!background_ranks_) {
    ProcessGroupOptions options = group_options_;
    options.cuda_backend = CudaBackend::kGloo;  // records and errors travel in host memory
    background_ranks_ = std::make_unique<Communicator>(state_, options);
  }
  return *background_ranks_;
}

SaveTicket StateKeeper::save(const TrainingState& training, const std::filesystem::path& directory,
                             const SaveOptions& options) {
  const bool numbered = directory.empty();
  const auto not_ready = checkpoint::caught([&] {
    if (numbered && !project_.automatic_checkpoint_naming) {
      throw UsageError(
          {.what = "save_state() was given no directory",
           .where = "save_state",
           .hint = "name one, or set .project = {.automatic_checkpoint_naming = true}"});
    }
    require_ready(options);
  });
  auto job = std::make_shared<checkpoint::SaveJob>(checkpoint::SaveJob::begin(
      *ranks_, group(), [&] { return target(directory); }, not_ready));
  const auto not_taken = checkpoint::caught([&] { take_snapshot(*job, training, options); });
  try {
    checkpoint::agree(*ranks_, not_taken);
  } catch (const CommError&) {
    throw;
  } catch (...) {
    job->abandon(*ranks_);
    throw;
  }
  const std::filesystem::path final_directory = job->final_directory();
  SaveTicket ticket = checkpoint::finished_ticket(final_directory);
  if (options.async) {
    Communicator& ranks = background_ranks();
    ticket = saver_.start(final_directory, [job = std::move(job), &ranks] { job->write(ranks); });
  } else {
    job->write(*ranks_);
  }
  if (numbered) ++project_.iteration;
  return ticket;
}

checkpoint::StateParts StateKeeper::parts_to_load(const TrainingState& training,
                                                  const std::filesystem::path& directory) const {
  std::vector<std::shared_ptr<torch::nn::Module>> models;
  for (const auto& entry : training.models) models.push_back(entry.module);
  for (const auto& [number, hook] : load_hooks_->hooks) hook(models, directory);
  const bool all_are_here = models.size() == training.models.size();

  checkpoint::StateParts parts;  // random generators last, schedulers before their optimizers
  parts.push_back(checkpoint::objects_part(objects_));
  parts.push_back(checkpoint::load_models(std::move(models), all_are_here));
  parts.push_back(checkpoint::schedulers_part(training.schedulers));
  parts.push_back(checkpoint::optimizers_part(training.optimizers, training.schedulers));
  parts.push_back(checkpoint::scaler_part(training.scaler));
  parts.push_back(checkpoint::loaders_part(training.loaders));
  parts.push_back(window_part(training, state_, std::nullopt));
  parts.push_back(checkpoint::rng_part(state_.rank(), state_.device(), 0));
  return parts;
}

// Past what was loaded, and past all that are there: an old one is never overwritten.
int64_t StateKeeper::iteration_after(const checkpoint::StateReader& loaded) const {
  int64_t newest = -1;
  if (const auto found = loaded.facts().find(kIteration); found != loaded.facts().end()) {
    newest = found->get<int64_t>();
  }
  const auto number_of = [](const std::string& name) {
    const auto parts = files::series_name(name);
    return parts && files::numbered_name(parts->number) == name ? parts->number : -1;
  };
  newest = std::max(newest, number_of(loaded.directory().filename().string()));
  if (project_.automatic_checkpoint_naming && std::filesystem::is_directory(series_folder())) {
    for (const auto& entry : files::list_checkpoints(series_folder())) {
      newest = std::max(newest, number_of(entry.name));
    }
  }
  return newest + 1;
}

std::filesystem::path StateKeeper::load(const TrainingState& training,
                                        const std::filesystem::path& directory,
                                        const LoadOptions& options) {
  const auto not_ready = checkpoint::caught([&] {
    if (directory.empty() && !project_.automatic_checkpoint_naming) {
      throw UsageError(
          {.what = "load_state() was given no directory",
           .where = "load_state",
           .hint = "name one, or set .project = {.automatic_checkpoint_naming = true}"});
    }
    require_ready({});
  });
  checkpoint::agree(*ranks_, not_ready);
  const checkpoint::StateReader loaded = checkpoint::load_checkpoint(
      *ranks_, group(),
      {.candidates =
           [&] {
             return checkpoint::load_candidates(directory, series_folder(), options.fall_back);
           },
       .parts = [&](const auto& folder) { return parts_to_load(training, folder); }},
      options);
  int64_t iteration = 0;
  checkpoint::agree(*ranks_, checkpoint::caught([&] {
    if (is_writer()) iteration = iteration_after(loaded);
  }));
  for (const std::string& of_rank : ranks_->all_gather_bytes(std::to_string(iteration))) {
    iteration = std::max<int64_t>(iteration, std::stoll(of_rank));
  }
  project_.iteration = iteration;
  if (state_.is_main_process()) {
    for (const std::string& note : loaded.notes()) {
      log(LogLevel::kWarning, "not restored from " + loaded.directory().string() + ": " + note);
    }
  }
  return loaded.directory();
}

}  // namespace accelerate
