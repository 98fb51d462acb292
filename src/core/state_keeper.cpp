#include "core/state_keeper.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <limits>
#include <string>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "accelerate/model_files.h"
#include "checkpoint/model/model_state.h"
#include "checkpoint/model/piece_exchange.h"
#include "checkpoint/state/rng_part.h"
#include "checkpoint/state/state_agreement.h"
#include "checkpoint/state/state_loading.h"
#include "comm/groups/activity.h"
#include "core/determinism_part.h"
#include "core/iteration_part.h"
#include "core/optimizer_replicas.h"
#include "core/window_part.h"
#include "files/manifest/checkpoint_names.h"

namespace accelerate {
namespace {

void require_number(int64_t iteration, const char* where) {
  // One past it must be a number too.
  if (iteration >= 0 && iteration < std::numeric_limits<int64_t>::max()) return;
  throw UsageError({.what = "iteration cannot be " + std::to_string(iteration),
                    .where = where,
                    .hint = "number checkpoints from 0"});
}

void require_usable_project(const ProjectOptions& project) {
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
  require_number(project.iteration, "ProjectOptions");
}

// Which tensors of which models are in pieces.
std::string names_in_pieces(const PreparedModels& models) {
  std::string names;
  for (size_t i = 0; i < models.size(); ++i) {
    for (const auto& [name, layout] : models[i].strategy->layout()) {
      names += (names.empty() ? "" : ", ") + name + " of model " + std::to_string(i);
    }
  }
  return names.empty() ? "nothing" : names;
}

// Throws UsageError on all ranks alike if pieces do not make the whole: the checkpoint would lack
// what nobody holds. All ranks know by now that they name the same. Collective.
void require_whole_models(Communicator& ranks, const PreparedModels& models) {
  for (const PreparedModule& entry : models) {
    if (entry.strategy->layout().empty()) continue;
    const auto own = [&] {
      return checkpoint::PieceTable::text_of(
          checkpoint::model_state(*entry.module, *entry.strategy));
    };
    const checkpoint::PieceTable complete(comm::gather_together(ranks, own), "save_state");
  }
}

// Tells the strategy when a save has taken what it needs, however it ends.
class AfterSave {
 public:
  explicit AfterSave(Strategy& strategy) : strategy_(strategy) {}
  // A strategy of the user's may throw all the same: the outcome of the save counts, not this.
  ~AfterSave() {
    try {
      strategy_.after_save();
    } catch (const std::exception& error) {
      log(LogLevel::kError, std::string("after_save() of the strategy failed: ") + error.what());
    }
  }
  AfterSave(const AfterSave&) = delete;
  AfterSave& operator=(const AfterSave&) = delete;

 private:
  Strategy& strategy_;
};

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
  require_usable_project(project_);
  if (project_.logging_dir.empty()) project_.logging_dir = project_.project_dir;
}

HookHandle StateKeeper::add_hook(SaveStateHook hook) {
  return add_to(save_hooks_, std::move(hook));
}
HookHandle StateKeeper::add_hook(LoadStateHook hook) {
  return add_to(load_hooks_, std::move(hook));
}

void StateKeeper::set_iteration(int64_t iteration) {
  require_number(iteration, "set_save_iteration");
  project_.iteration = iteration;
}

void StateKeeper::free_memory() {
  saver_.wait();
  buffers_ = {};
}

checkpoint::SaveGroup StateKeeper::group() const {
  if (!project_.save_on_each_node) return {.id = 0, .is_leader = state_.is_main_process()};
  return {.id = state_.node_rank(), .is_leader = state_.is_local_main_process()};
}

checkpoint::SaveTarget StateKeeper::target(const std::filesystem::path& directory) const {
  if (!directory.empty()) return {.directory = directory};
  const auto folder = series_folder() / files::numbered_name(project_.iteration);
  require_last_of_series(folder);
  return {.directory = folder, .total_limit = project_.total_limit};
}

// Numbers from here on belong to another run. Rotation would take them for newer ones than those of
// this run, and so would load_state().
void StateKeeper::require_last_of_series(const std::filesystem::path& next) const {
  std::error_code error;
  if (!std::filesystem::is_directory(next.parent_path(), error)) return;
  for (const auto& entry : std::filesystem::directory_iterator(next.parent_path())) {
    const auto name = files::series_name(entry.path().filename().string());
    if (!name || name->series != files::kSeries || name->number < project_.iteration) continue;
    throw CheckpointError(
        {.what = "a checkpoint already exists that this run has neither written nor loaded",
         .where = std::filesystem::absolute(entry.path()).string(),
         .hint = "load_state() or set_save_iteration() to go on after it, or name another "
                 "project_dir"});
  }
}

void StateKeeper::require_directory(const std::filesystem::path& directory,
                                    const char* where) const {
  if (!directory.empty() || project_.automatic_checkpoint_naming) return;
  throw UsageError({.what = std::string(where) + "() was given no directory",
                    .where = where,
                    .hint = "name one, or set .project = {.automatic_checkpoint_naming = true}"});
}

void StateKeeper::require_idle(const SaveOptions& options) const {
  if (!saver_.busy() || options.while_saving != WhileSaving::kRefuse) return;
  throw UsageError({.what = "the last checkpoint is still being written",
                    .where = "save_state",
                    .hint = "wait for its ticket, or pass {.while_saving = WhileSaving::kWait}"});
}

// Waits for the last save beside the training. Throws its error on all ranks if none of them has
// seen it yet; one that has seen it has dealt with it for all. Drops the group of the writers on
// all ranks if one of them has lost it. Collective.
void StateKeeper::settle_last_save() {
  constexpr char kLost = 'L', kUsable = '+';
  constexpr char kSeen = 'S', kUnseen = 'U';
  saver_.wait();
  std::string own(1, background_is_lost_ ? kLost : kUsable);
  if (const auto error = saver_.error()) {
    own += saver_.error_is_seen() ? kSeen : kUnseen;
    own += comm::encode(comm::failure_of(error));
  }
  const std::vector<std::string> all = ranks_->all_gather_bytes(own);
  saver_.set_error_seen();
  if (std::ranges::any_of(all, [](const auto& of_rank) { return of_rank[0] == kLost; })) {
    background_ranks_.reset();
    background_is_lost_ = false;
  }
  const auto has = [](char what) {
    return [what](const auto& of_rank) { return of_rank.size() > 1 && of_rank[1] == what; };
  };
  if (std::ranges::any_of(all, has(kSeen))) return;
  const auto first = std::ranges::find_if(all, has(kUnseen));
  if (first == all.end()) return;
  const auto rank = static_cast<int>(first - all.begin());
  checkpoint::throw_of_checkpoint(*ranks_, comm::decode_failure(first->substr(2), rank));
}

void StateKeeper::run_hooks(std::vector<ModelToSave>& models,
                            const std::filesystem::path& directory) const {
  for (const auto& [number, hook] : save_hooks_->hooks) {
    try {
      hook(models, directory);
    } catch (const Error&) {
      throw;  // it says what it has to say
    } catch (const std::exception& error) {
      throw CheckpointError({.what = std::string("a save hook failed: ") + error.what(),
                             .where = "hook " + std::to_string(number) + " of save_state",
                             .hint = "nothing was saved; fix the hook, or remove it"});
    }
  }
}

void StateKeeper::take_snapshot(checkpoint::SaveJob& job, const TrainingState& training,
                                const SaveOptions& options) {
  // With a folder on each node one copy may lie on several of them.
  const auto piece_ranks = training.strategy->ranks_of_one_copy();
  if (piece_ranks && *piece_ranks < state_.world_size() && !project_.save_on_each_node) {
    job.snapshot().take_pieces_below(*piece_ranks);
  }
  std::vector<ModelToSave> models;
  for (const auto& entry : training.models) {
    checkpoint::ModelState state = checkpoint::model_state(*entry.module, *entry.strategy);
    models.push_back({.module = entry.module,
                      .weights = std::move(state.tensors),
                      .layout = std::move(state.layout)});
  }
  run_hooks(models, job.directory());

  checkpoint::StateParts parts;
  parts.push_back(
      checkpoint::save_models(std::move(models), options.safe_serialization, state_.rank()));
  parts.push_back(checkpoint::optimizers_part(training.optimizers, training.schedulers,
                                              optimizers_elsewhere(), state_.rank()));
  parts.push_back(checkpoint::schedulers_part(training.schedulers));
  parts.push_back(checkpoint::scaler_part(training.scaler));
  parts.push_back(checkpoint::loaders_part(training.loaders));
  parts.push_back(checkpoint::objects_part(objects_));
  parts.push_back(window_part(training, state_, options.gradients));
  parts.push_back(checkpoint::rng_part(state_.rank(), state_.device(), training.window->step()));
  parts.push_back(determinism_part(state_.world_size(), state_.rank()));
  parts.push_back(iteration_of_project());
  for (const auto& part : parts) part->save(job.snapshot());
  if (!training.optimizers.empty()) job.set_step(training.optimizers.front().step_count());
  if (options.async) job.snapshot().copy_to_host(buffers_);
}

std::unique_ptr<checkpoint::StatePart> StateKeeper::iteration_of_project() {
  return iteration_part(project_, series_folder(), *ranks_, is_writer());
}

checkpoint::OptimizersElsewhere StateKeeper::optimizers_elsewhere() const {
  checkpoint::OptimizersElsewhere elsewhere;
  for (const CheckpointFunctions& object : objects_) elsewhere.insert(object.optimizer);
  return elsewhere;
}

Communicator& StateKeeper::background_ranks() {
  if (!background_ranks_) {
    ProcessGroupOptions options = group_options_;
    options.cuda_backend = CudaBackend::kGloo;  // records and errors travel in host memory
    background_ranks_ = comm::open_beside(*ranks_, options);
  }
  return *background_ranks_;
}

std::vector<comm::Fact> StateKeeper::facts_of_save(const TrainingState& training,
                                                   const std::filesystem::path& directory,
                                                   const SaveOptions& options) const {
  const auto yes_or_no = [](bool value) { return std::string(value ? "true" : "false"); };
  std::vector<comm::Fact> facts{
      {".async", yes_or_no(options.async)},
      {".safe_serialization", yes_or_no(options.safe_serialization)},
      {".gradients", options.gradients ? yes_or_no(*options.gradients) : "unset"},
      {"the number of models", std::to_string(training.models.size())},
      {"the number of optimizers", std::to_string(training.optimizers.size())},
      {"the number of schedulers", std::to_string(training.schedulers.size())},
      {"the number of loaders", std::to_string(training.loaders.size())},
      {"the number of registered objects", std::to_string(objects_.size())},
      {"what is in pieces", names_in_pieces(training.models)}};
  if (!project_.save_on_each_node) facts.push_back({"the directory", directory.string()});
  return facts;
}

SaveTicket StateKeeper::save(const TrainingState& training, const std::filesystem::path& directory,
                             const SaveOptions& options) {
  comm::require_same(*ranks_, facts_of_save(training, directory, options), "save_state");
  checkpoint::agree(*ranks_, [&] {
    require_directory(directory, "save_state");
    require_idle(options);
    training.strategy->require_sound("save_state");
    if (options.async) saver_.prepare();
  });
  const AfterSave after(*training.strategy);
  const bool with_gradients = saves_gradients(training, options.gradients);
  checkpoint::agree(*ranks_, [&] { training.strategy->before_save("save_state", with_gradients); },
                    {.keep_own = true});
  if (training.strategy_is_users) {
    require_equal_optimizers(*ranks_, training.optimizers, optimizers_elsewhere(),
                             training.strategy->name());
  }
  require_whole_models(*ranks_, training.models);
  settle_last_save();
  if (options.async) background_ranks();
  auto job = std::make_shared<checkpoint::SaveJob>(
      checkpoint::SaveJob::begin(*ranks_, group(), [&] { return target(directory); }));
  const EventSpan span(comm::events_of(*ranks_), EventKind::kCheckpointBegin,
                       "save " + job->final_directory().string());
  checkpoint::agree(*ranks_, [&] { take_snapshot(*job, training, options); },
                    {.take_back = [&] { job->abandon(); }});
  SaveTicket ticket = checkpoint::AsyncSaver::finished(job->final_directory());
  if (options.async) {
    ticket = write_beside(std::move(job));
  } else {
    job->write(*ranks_);
  }
  if (directory.empty()) ++project_.iteration;
  return ticket;
}

SaveTicket StateKeeper::write_beside(std::shared_ptr<checkpoint::SaveJob> job) {
  const std::filesystem::path directory = job->final_directory();
  const auto write = [this, job = std::move(job), &ranks = background_ranks()]() {
    const EventSpan span(comm::events_of(ranks), EventKind::kCheckpointBegin,
                         "write " + job->final_directory().string());
    try {
      job->write(ranks);
    } catch (const CommError& error) {
      // The group of the training may be well: for it this is one more save that failed.
      background_is_lost_ = true;
      throw CheckpointError(
          {.what = "the ranks lost each other while they wrote: " + error.message(),
           .where = job->final_directory().string(),
           .hint = "save again; load_state() takes the newest complete one"});
    }
  };
  return saver_.start(directory, write);
}

checkpoint::StateParts StateKeeper::parts_to_load(const TrainingState& training,
                                                  const std::filesystem::path& directory) {
  std::vector<std::shared_ptr<torch::nn::Module>> models;
  for (const auto& entry : training.models) models.push_back(entry.module);
  checkpoint::ParameterNames names = checkpoint::names_of_parameters(models);
  for (const auto& [number, hook] : load_hooks_->hooks) hook(models, directory);
  const bool all_are_here = models.size() == training.models.size();

  checkpoint::StateParts parts;  // random generators last, schedulers before their optimizers
  parts.push_back(checkpoint::objects_part(objects_));
  // Nothing for a module that a hook has put there.
  const auto entry_of = [&training](const torch::nn::Module& module) -> const PreparedModule* {
    const auto found = std::ranges::find_if(training.models, [&](const PreparedModule& entry) {
      return entry.module.get() == &module;
    });
    return found == training.models.end() ? nullptr : &*found;
  };
  const auto state_of = [entry_of](const torch::nn::Module& module) {
    const PreparedModule* entry = entry_of(module);
    if (entry != nullptr) return checkpoint::model_state(module, *entry->strategy);
    return checkpoint::ModelState{.tensors = get_state_dict(module)};
  };
  const auto when_loaded = [entry_of](const torch::nn::Module& module) {
    if (const PreparedModule* entry = entry_of(module)) entry->strategy->masters_changed();
  };
  parts.push_back(checkpoint::load_models(std::move(models), all_are_here,
                                          {.state = state_of, .loaded = when_loaded}));
  parts.push_back(checkpoint::schedulers_part(training.schedulers));
  parts.push_back(checkpoint::optimizers_part(training.optimizers, training.schedulers,
                                              optimizers_elsewhere(), state_.rank(),
                                              std::move(names)));
  parts.push_back(checkpoint::scaler_part(training.scaler));
  parts.push_back(checkpoint::loaders_part(training.loaders));
  parts.push_back(determinism_part(state_.world_size(), state_.rank()));
  parts.push_back(iteration_of_project());
  parts.push_back(window_part(training, state_, std::nullopt));
  parts.push_back(checkpoint::rng_part(state_.rank(), state_.device(), 0));
  return parts;
}

std::filesystem::path StateKeeper::load(const TrainingState& training,
                                        const std::filesystem::path& directory,
                                        const LoadOptions& options) {
  checkpoint::agree(*ranks_, [&] { require_directory(directory, "load_state"); });
  settle_last_save();
  const EventSpan span(comm::events_of(*ranks_), EventKind::kCheckpointBegin,
                       "load " + directory.string());
  const std::optional<checkpoint::StateReader> loaded = checkpoint::load_checkpoint(
      *ranks_, group(),
      {.candidates =
           [&] { return checkpoint::load_candidates(directory, series_folder(), options); },
       .parts = [&](const auto& folder) { return parts_to_load(training, folder); },
       .begin = training.begin_replacing},
      options);
  if (!loaded) return {};
  if (state_.is_main_process()) {
    for (const std::string& note : loaded->notes()) {
      log(LogLevel::kWarning, "not restored from " + loaded->directory().string() + ": " + note);
    }
  }
  return loaded->directory();
}

}  // namespace accelerate
