// The members of Accelerator that are about files and preemption.
#include <torch/nn/module.h>

#include <exception>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "accelerate/accelerator.h"
#include "accelerate/model_files.h"
#include "checkpoint/model/file_format.h"
#include "checkpoint/model/model_state.h"
#include "checkpoint/model/piece_exchange.h"
#include "checkpoint/model/save_tensors.h"
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
  settle_configuration();
  optimizers->drop_expired();  // the updates and the strategy look at the rest
  if (updates) updates->settle();
  for (const auto& [module, model] : models) {
    (void)checkpoint::model_state(*module, *model);  // throws for a layout that does not fit
  }
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
                               if (updates) {
                                 updates->abandon();
                                 unfit->forget_all();
                               }
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
    impl_->tracking->continue_run();
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

ModelStateDict Accelerator::exact_state_dict(const torch::nn::Module& module,
                                             const ModelStrategy& strategy) const {
  return impl_->stamped([&] {
    impl_->optimizers->drop_expired();  // the strategy looks at the rest
    if (strategy.layout().empty()) return checkpoint::model_state(module, strategy).tensors;
    constexpr const char* kWhere = "get_state_dict";
    Communicator& ranks = *impl_->communicator;
    const comm::Activity activity(ranks, kWhere);
    checkpoint::ModelState own;
    const auto describe = [&] {
      own = checkpoint::model_state(module, strategy);
      return checkpoint::PieceTable::text_of(own);
    };
    const checkpoint::PieceTable table(comm::gather_together(ranks, describe), kWhere);
    std::vector<std::string> order;
    for (const auto& item : own.tensors) {
      if (!own.tied.contains(item.key())) order.push_back(item.key());
    }
    const bool keeps = impl_->keeper->is_writer();
    checkpoint::PieceExchange exchange(ranks, own, table, order, keeps);
    ModelStateDict whole;
    for (const auto& item : own.tensors) {
      const auto tied = own.tied.find(item.key());
      const bool is_new = tied == own.tied.end();
      const at::Tensor tensor = is_new ? exchange.take(item.key()) : at::Tensor();
      if (keeps) whole.insert(item.key(), is_new ? tensor : whole[tied->second]);
    }
    return whole;
  });
}

void Accelerator::write_model(const torch::nn::Module& module, const ModelStrategy& strategy,
                              const std::filesystem::path& folder,
                              const SaveModelOptions& options) const {
  impl_->stamped([&] {
    constexpr const char* kWhere = "save_model";
    Communicator& ranks = *impl_->communicator;
    const comm::Activity activity(ranks, kWhere);
    impl_->optimizers->drop_expired();  // the strategy looks at the rest
    const auto texts = comm::gather_together(
        ranks,
        [&] {
          impl_->checks->before_save(kWhere);
          impl_->strategy->require_sound(kWhere);
          return checkpoint::PieceTable::text_of(checkpoint::model_state(module, strategy));
        },
        {.retell = checkpoint::throw_of_checkpoint});
    const checkpoint::PieceTable table(texts, kWhere);
    checkpoint::agree(ranks,
                      [&] { impl_->strategy->before_save(kWhere, /*with_gradients=*/false); },
                      {.keep_own = true});
    const bool writes = impl_->keeper->is_writer();
    if (table.empty()) {
      const auto write = [&] {
        if (!writes) return;
        checkpoint::save_tensors(checkpoint::model_state(module, strategy).tensors, folder,
                                 options);
      };
      return checkpoint::agree(ranks, write, {.takes_long = true});
    }
    checkpoint::ModelState own;
    ModelStateDict described;
    std::vector<std::string> order;
    checkpoint::agree(ranks, [&] {
      own = checkpoint::model_state(module, strategy);
      described = checkpoint::described_tensors(own);
      order = checkpoint::saving_order(described, options);
    });
    checkpoint::PieceExchange exchange(ranks, own, table, order, writes);
    // A rank that cannot write goes on with the exchange: the others are in it.
    checkpoint::agree(ranks, [&] {
      std::exception_ptr error;
      try {
        if (writes) {
          checkpoint::save_tensors(described, folder, options,
                                   [&](const std::string& name) { return exchange.take(name); });
        }
      } catch (const CommError&) {
        throw;
      } catch (...) {
        error = std::current_exception();
      }
      exchange.finish();
      if (error) std::rethrow_exception(error);
    });
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
