// The parts of a training state that know nothing of the accelerator.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "accelerate/checkpoint.h"
#include "accelerate/detail/followed_loader.h"
#include "accelerate/grad_scaler.h"
#include "accelerate/prepared_optimizer.h"
#include "accelerate/schedulers.h"
#include "checkpoint/model/model_state.h"
#include "checkpoint/state/dcp_optimizer.h"
#include "checkpoint/state/state_part.h"

namespace accelerate::checkpoint {

// model.safetensors or pytorch_model.bin, model_1..., with the names of Python's state_dict(). Of
// models in pieces each rank writes its own: see model_pieces.h. Loaded are also the folders that
// FSDP and DeepSpeed in Python leave in their place (pytorch_model_fsdp_0, pytorch_model).
std::unique_ptr<StatePart> save_models(std::vector<ModelToSave> models, bool safe_serialization,
                                       int rank);
// What a model is loaded into.
struct ModelTargets {
  std::function<ModelState(const torch::nn::Module&)> state{};
  // They were loaded.
  std::function<void(const torch::nn::Module&)> loaded{};
};
// `all_are_here`: no hook has dropped one, so the checkpoint must hold as many.
std::unique_ptr<StatePart> load_models(std::vector<std::shared_ptr<torch::nn::Module>> models,
                                       bool all_are_here, ModelTargets targets);

// Those for which registered objects speak, see CheckpointFunctions::optimizer.
using OptimizersElsewhere = std::set<const torch::optim::Optimizer*>;

// optimizer.bin, optimizer_1.bin, ... as Python's state_dict(), of all that are not `elsewhere`;
// and in the facts how many updates each has made. What Python's schedulers keep in the groups is
// taken from `schedulers`. Saving throws CheckpointError for a class that is not known. Where the
// strategy trains pieces, each rank writes its own: see optimizer_pieces.h. To load what FSDP in
// Python has left (folders optimizer_0, ...) it needs the names of the parameters.
std::unique_ptr<StatePart> optimizers_part(std::vector<PreparedOptimizer> optimizers,
                                           std::vector<Scheduler> schedulers,
                                           const OptimizersElsewhere& elsewhere, int rank,
                                           ParameterNames names = {});

// scheduler.bin, scheduler_1.bin, ... as Python's state_dict(). To be applied before the
// optimizers, whose files have the last word on their rates.
std::unique_ptr<StatePart> schedulers_part(std::vector<Scheduler> schedulers);

// scaler.pt; `scaler` is null where losses are not scaled.
std::unique_ptr<StatePart> scaler_part(GradScaler* scaler);

// sampler.bin, sampler_1.bin, ...: where each loader stands, a LoaderState.
std::unique_ptr<StatePart> loaders_part(
    std::vector<std::shared_ptr<detail::FollowedLoader>> loaders);

// custom_checkpoint_0.pkl, ...: what register_for_checkpointing() was given.
std::unique_ptr<StatePart> objects_part(std::vector<CheckpointFunctions> objects);

}  // namespace accelerate::checkpoint
