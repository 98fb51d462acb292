// The members of Accelerator that are about files and preemption.
#include <torch/nn/module.h>

#include <utility>
#include <variant>

#include "accelerate/accelerator.h"
#include "accelerate/model_files.h"
#include "checkpoint/model/file_format.h"
#include "checkpoint/state/state_agreement.h"
#include "comm/groups/activity.h"
#include "core/accelerator_impl.h"

namespace accelerate {

void Accelerator::Impl::before_save(const SaveOptions& save) {
  checks->before_save("save_state");
  if (save.gradients.value_or(false) && updates && updates->holds_unscaled()) {
    throw UsageError({.what = "gradients that were unscaled cannot be saved: load_state() would "
                              "treat them as scaled",
                      .where = "save_state",
                      .hint = "save before they are clipped or unscaled, or after step()"});
  }
  window->restore_gradients();
}

TrainingState Accelerator::Impl::training_state() {
  if (updates) updates->settle();
  for (const PreparedOptimizer& prepared : optimizers->live()) prepared.agree_groups();
  TrainingState training{.strategy = strategy,
                         .models = models,
                         .optimizers = optimizers->live(),
                         .scaler = updates ? &updates->scaler() : nullptr,
                         .window = &window->counter(),
                         .weights = &window->weights(),
                         .trigger = &trigger,
                         .begin_replacing =
                             [checks = checks](const std::filesystem::path& directory) {
                               checks->set_loading(directory.string());
                             },
                         .gradients_replaced =
                             [this] {
                               ++loads;
                               if (updates) updates->abandon();
                               window->adopt_loaded();
                               for (const PreparedOptimizer& prepared : optimizers->live()) {
                                 prepared.strategy().parameters_loaded();
                               }
                             }};
  training.strategy_is_users =
      std::holds_alternative<std::shared_ptr<StrategyFactory>>(options.strategy);
  // Schedulers whose optimizer was destroyed are dropped.
  for (const auto& find : schedulers) {
    const auto scheduler = find();
    const auto* moved = scheduler ? scheduler->optimizer_if_known() : nullptr;
    if (moved != nullptr && optimizers->find(*moved) != nullptr) {
      training.schedulers.push_back(*scheduler);
    }
  }
  for (const auto& loader : loaders) {
    if (loader->control()) training.loaders.push_back(loader);
  }
  return training;
}

SaveTicket Accelerator::save_state(const std::filesystem::path& dir, const SaveOptions& options) {
  impl_->streams->separate();  // a checkpoint holds the streams that the loop draws from
  return impl_->stamped([&] {
    const comm::Activity activity(*impl_->communicator, "save_state");
    // What is wrong on one rank is thrown on all: the others would wait for it.
    TrainingState training;
    checkpoint::agree(*impl_->communicator, [&] {
      impl_->before_save(options);
      training = impl_->training_state();
    });
    return impl_->keeper->save(training, dir, options);
  });
}

std::filesystem::path Accelerator::load_state(const std::filesystem::path& dir,
                                              const LoadOptions& options) {
  return impl_->stamped([&] {
    const comm::Activity activity(*impl_->communicator, "load_state");
    TrainingState training;
    checkpoint::agree(*impl_->communicator, [&] { training = impl_->training_state(); });
    const auto loaded = impl_->keeper->load(training, dir, options);
    if (loaded.empty()) return loaded;
    impl_->streams->set_separate();
    impl_->checks->set_loaded();
    return loaded;
  });
}

std::optional<std::filesystem::path> Accelerator::resume(const std::filesystem::path& dir) {
  auto loaded = load_state(dir, {.if_any = true, .fall_back = true});
  if (loaded.empty()) return {};
  return loaded;
}

void Accelerator::register_object(CheckpointFunctions object) {
  impl_->stamped([&] {
    if (object.state_dict && object.load_state_dict) {
      return impl_->keeper->add_object(std::move(object));
    }
    throw UsageError({.what = "an object for checkpoints that lacks one of its functions",
                      .where = "register_for_checkpointing",
                      .hint = "set both state_dict and load_state_dict"});
  });
}

HookHandle Accelerator::register_save_state_pre_hook(SaveStateHook hook) {
  return impl_->keeper->add_hook(std::move(hook));
}
HookHandle Accelerator::register_load_state_pre_hook(LoadStateHook hook) {
  return impl_->keeper->add_hook(std::move(hook));
}

int64_t Accelerator::save_iteration() const { return impl_->keeper->project().iteration; }
void Accelerator::set_save_iteration(int64_t iteration) { impl_->keeper->set_iteration(iteration); }
const std::filesystem::path& Accelerator::project_dir() const {
  return impl_->keeper->project().project_dir;
}
const std::filesystem::path& Accelerator::logging_dir() const {
  return impl_->keeper->project().logging_dir;
}

void Accelerator::write_model(const torch::nn::Module& module, const std::filesystem::path& folder,
                              const SaveModelOptions& options) const {
  impl_->stamped([&] {
    Communicator& ranks = *impl_->communicator;
    const comm::Activity activity(ranks, "save_model");
    impl_->optimizers->drop_expired();  // the strategy looks at the rest
    checkpoint::agree(ranks, [&] {
      impl_->checks->before_save("save_model");
      impl_->strategy->require_sound("save_model");
    });
    checkpoint::agree(ranks, [&] { impl_->strategy->before_save("save_model"); },
                      {.keep_own = true});
    const auto write = [&] {
      if (impl_->keeper->is_writer()) accelerate::save_model(module, folder, options);
    };
    checkpoint::agree(ranks, write, {.takes_long = true});
  });
}

void Accelerator::save(const TorchValue& object, const std::filesystem::path& path) const {
  impl_->stamped([&] {
    checkpoint::require_archive_name(path);
    if (impl_->keeper->is_writer()) accelerate::save(object, path);
  });
}

void Accelerator::save(const NamedTensors& tensors, const std::filesystem::path& path,
                       const SaveFileOptions& options) const {
  impl_->stamped([&] {
    (void)checkpoint::writes_safetensors(path, options);  // refused on all ranks, or on none
    if (impl_->keeper->is_writer()) accelerate::save(tensors, path, options);
  });
}

bool Accelerator::should_checkpoint_and_exit() {
  if (!impl_->signals) return false;
  return impl_->stamped([&] {
    const comm::Activity activity(*impl_->communicator, "should_checkpoint_and_exit");
    Trigger seen;
    if (impl_->signals->raised()) seen.set();
    return seen.check(*impl_->communicator);
  });
}

int Accelerator::preemption_exit_code() const { return impl_->options.preemption.exit_code; }

}  // namespace accelerate
