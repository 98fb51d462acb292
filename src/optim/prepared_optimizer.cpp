#include "accelerate/prepared_optimizer.h"

#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include <ostream>
#include <typeinfo>
#include <utility>

#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "device/replay_actions.h"
#include "optim/optimizer_adapter.h"
#include "optim/optimizer_step.h"

namespace accelerate {

struct PreparedOptimizer::Impl : std::enable_shared_from_this<Impl> {
  // Runs `call` and stamps the errors that pass through with the rank.
  template <class Call>
  auto stamped(Call call) const {
    return detail::stamped(*host, call);
  }

  at::Tensor update(LossClosure closure) {
    if (closure && host->accumulates()) {
      throw UsageError({.what = "a closure runs all its backward passes in one micro-batch, and "
                                "gradients accumulate over several",
                        .where = "step",
                        .hint = "set gradient_accumulation.steps to 1 for this optimizer"});
    }
    if (closure && strategy->layout()) {
      throw UsageError({.what = "the strategy trains pieces of parameters, and a closure computes "
                                "gradients of whole ones",
                        .where = "step",
                        .hint = "call Accelerator::backward and then step() without a closure"});
    }
    if (!closure) {  // a closure runs its own backward passes
      host->require_complete(strategy->parameters());
      if (host->scales_losses()) host->before_update(*optimizer);
      host->finish_gradients(*optimizer, strategy->parameters());
      strategy->before_step();
    }
    if (!host->scales_losses()) {
      at::Tensor loss = step->step(std::move(closure));
      count_update();
      return loss;
    }
    if (closure) {
      throw UsageError({.what = "a closure computes its loss unscaled, after which the gradients "
                                "would be divided by the scale",
                        .where = "step",
                        .hint = "call Accelerator::backward and then step() without a closure"});
    }
    if (step->can_look_on_device()) {
      const bool done = host->run_update_on_device(
          *optimizer, [this](const at::Tensor& found_inf) { step->step_unless(found_inf); },
          [weak = weak_from_this()](bool was_skipped) {
            if (const auto self = weak.lock()) self->update_ended(was_skipped);
          });
      if (done) return {};
    }
    skipped = !host->run_update(*optimizer, [this] { step->step(nullptr); });
    if (!skipped) ++step_count;
    return {};
  }

  // A recorded update is made, and counted, by the replays.
  void count_update() {
    if (auto* actions = device::ReplayActions::current()) {
      actions->add_after([weak = weak_from_this()] {
        if (const auto self = weak.lock()) ++self->step_count;
      });
    } else {
      ++step_count;
    }
  }

  // A recorded step is made by the replays.
  void note_step() {
    host->stepped(*optimizer, strategy->parameters());
    if (auto* actions = device::ReplayActions::current()) {
      actions->add_after([weak = weak_from_this()] {
        if (const auto self = weak.lock())
          self->host->stepped(*self->optimizer, self->strategy->parameters());
      });
    }
  }

  void update_ended(bool was_skipped) {
    skipped = was_skipped;
    if (!skipped) ++step_count;
    step->ended(was_skipped);
  }

  // The user's parameters by their groups.
  std::vector<std::vector<at::Tensor>> groups_of_user() const {
    const std::vector<at::Tensor> all = strategy->parameters();
    const auto layout = strategy->layout();
    std::vector<std::vector<at::Tensor>> groups;
    size_t next = 0;
    for (const auto& group : optimizer->param_groups()) {
      const size_t count = layout ? layout->group_sizes.at(groups.size()) : group.params().size();
      std::vector<at::Tensor>& own = groups.emplace_back();
      for (const size_t end = next + count; next < end; ++next) own.push_back(all.at(next));
    }
    return groups;
  }

  void require_whole_state(const char* where) const {
    if (!strategy->layout()) return;
    stamped([&] {
      throw UsageError({.what = "the state of this optimizer is cut between the ranks, and this "
                                "rank has pieces of it",
                        .where = where,
                        .hint = "save_state() and load_state() keep all of it"});
    });
  }

  void agree_groups() const {
    if (adapter) stamped([&] { adapter->agree(); });
  }

  std::shared_ptr<torch::optim::Optimizer> optimizer;
  std::unique_ptr<OptimizerStrategy> strategy;  // never null
  std::shared_ptr<OptimizerHost> host;          // never null
  std::unique_ptr<OptimizerStep> step;
  std::unique_ptr<OptimizerAdapter> adapter;  // once somebody asked for it
  bool skipped = false;
  int64_t step_count = 0;
};

PreparedOptimizer::PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                     std::unique_ptr<OptimizerStrategy> strategy,
                                     std::shared_ptr<OptimizerHost> host)
    : impl_(std::make_shared<Impl>()) {
  impl_->optimizer = std::move(optimizer);
  impl_->strategy =
      strategy ? std::move(strategy) : std::make_unique<OptimizerStrategy>(*impl_->optimizer);
  impl_->host = host ? std::move(host) : std::make_shared<OptimizerHost>();
  impl_->step = impl_->strategy->make_step();
}

PreparedOptimizer::PreparedOptimizer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

at::Tensor PreparedOptimizer::step(LossClosure closure) {
  impl_->agree_groups();
  return impl_->stamped([&]() -> at::Tensor {
    impl_->host->before_step();
    if (!closure && !impl_->host->sync_gradients()) return {};
    at::Tensor loss = impl_->update(std::move(closure));
    impl_->note_step();
    impl_->strategy->after_step();
    return loss;
  });
}

void PreparedOptimizer::zero_grad(bool set_to_none) {
  const std::vector<at::Tensor> parameters = impl_->strategy->parameters();
  const bool drops =
      impl_->stamped([&] { return impl_->host->begin_zero_grad(*impl_->optimizer, parameters); });
  if (!drops) return;
  impl_->strategy->drop_gradients(set_to_none);
}

bool PreparedOptimizer::step_was_skipped() const {
  impl_->host->settle();
  return impl_->skipped;
}

int64_t PreparedOptimizer::step_count() const {
  impl_->host->settle();
  return impl_->step_count;
}

void PreparedOptimizer::set_step_count(int64_t steps) {
  impl_->host->settle();
  impl_->step_count = steps;
}

PreparedOptimizer::operator torch::optim::Optimizer&() const& {
  if (!impl_->adapter) {
    // By the handle that the adapter belongs to: it cannot outlive it.
    const auto step = [impl = impl_.get()](LossClosure closure) {
      return PreparedOptimizer(impl->shared_from_this()).step(std::move(closure));
    };
    impl_->stamped([&] {
      impl_->adapter = std::make_unique<OptimizerAdapter>(
          *impl_->optimizer, [impl = impl_.get()] { return impl->groups_of_user(); }, step,
          [impl = impl_.get()] { impl->host->settle(); },
          [impl = impl_.get()](const char* where) { impl->require_whole_state(where); });
    });
  }
  impl_->agree_groups();
  return *impl_->adapter;
}

void PreparedOptimizer::agree_groups() const { impl_->agree_groups(); }

std::vector<torch::optim::OptimizerParamGroup>& PreparedOptimizer::param_groups() {
  impl_->agree_groups();
  return impl_->optimizer->param_groups();
}

std::vector<at::Tensor> PreparedOptimizer::parameters() const {
  return impl_->strategy->parameters();
}

OptimizerStrategy& PreparedOptimizer::strategy() const { return *impl_->strategy; }

torch::optim::Optimizer& PreparedOptimizer::optimizer() const { return *impl_->optimizer; }

std::ostream& operator<<(std::ostream& stream, const PreparedOptimizer& optimizer) {
  const torch::optim::Optimizer& own = optimizer.optimizer();
  stream << c10::demangle(typeid(own).name()) << ", lr ";
  const char* separator = "";
  for (const auto& group : own.param_groups()) {
    stream << std::exchange(separator, " and ") << group.options().get_lr();
  }
  return stream << ", " << optimizer.parameters().size() << " parameters";
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                            const PreparedOptimizer& optimizer) {
  static_cast<const torch::optim::Optimizer&>(optimizer).save(archive);
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                           const PreparedOptimizer& optimizer) {
  static_cast<torch::optim::Optimizer&>(optimizer).load(archive);
  return archive;
}

}  // namespace accelerate
