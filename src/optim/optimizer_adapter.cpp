#include "optim/optimizer_adapter.h"

#include <c10/util/Type.h>

#include <algorithm>
#include <string>
#include <typeindex>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/prepared_optimizer.h"
#include "optim/group_options.h"

namespace accelerate {
namespace {

constexpr const char* kAdapter = "torch::optim::Optimizer& of a prepared optimizer";

std::type_index type_of(const torch::optim::OptimizerOptions& options) { return typeid(options); }

bool same_tensors(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  return std::ranges::equal(one, other,
                            [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
}

}  // namespace

OptimizerAdapter::OptimizerAdapter(torch::optim::Optimizer& own, Groups groups, Step step,
                                   std::function<void()> settle,
                                   std::function<void(const char*)> require_whole)
    : Optimizer(own.param_groups(), own.defaults().clone()),
      own_(own),
      groups_(std::move(groups)),
      step_(std::move(step)),
      settle_(std::move(settle)),
      require_whole_(std::move(require_whole)) {
  take_groups();
}

void OptimizerAdapter::require_same_groups() const {
  const auto& groups = param_groups();
  const bool same = std::ranges::equal(groups, known_, [](const auto& group, const Group& known) {
    return same_tensors(group.params(), known.parameters) && group.has_options() &&
           type_of(group.options()) == type_of(*known.options);
  });
  if (same) return;
  throw UsageError({.what =
                        "parameter groups were added or replaced where the prepared optimizer does "
                        "not see it",
                    .where = kAdapter,
                    .hint = "call add_param_group() of the optimizer that was given to prepare()"});
}

void OptimizerAdapter::take_groups() {
  param_groups_.clear();
  known_.clear();
  const std::vector<std::vector<at::Tensor>> groups = groups_();
  for (const auto& group : std::as_const(own_).param_groups()) {
    if (!can_merge_options(group.options())) {
      throw UsageError(
          {.what = "options of the type " + c10::demangle(type_of(group.options()).name()) +
                   " cannot be kept the same in two places",
           .where = kAdapter,
           .hint = "call step() of the prepared optimizer, or give its options one of the types of "
                   "torch::optim"});
    }
    const std::vector<at::Tensor>& parameters = groups[param_groups_.size()];
    param_groups_.push_back(group);
    param_groups_.back().params() = parameters;
    known_.push_back(
        {.parameters = parameters, .trained = group.params(), .options = group.options().clone()});
  }
}

void OptimizerAdapter::take_options() {
  const size_t common = std::min(param_groups_.size(), own_.param_groups().size());
  for (size_t i = 0; i < common; ++i) {
    // Options of another type are a new beginning.
    if (type_of(own_.param_groups()[i].options()) != type_of(*known_[i].options)) continue;
    const auto contradictions = merge_options(own_.param_groups()[i].options(),
                                              param_groups_[i].options(), *known_[i].options);
    if (contradictions.empty()) continue;
    throw UsageError(
        {.what = "'" + contradictions.front() + "' of parameter group " + std::to_string(i) +
                 " was set to one value in the optimizer that was given to prepare() and "
                 "to another through the torch::optim::Optimizer& of the prepared one",
         .where = kAdapter,
         .hint = "change options in one of the two places, or let a scheduler do it"});
  }
}

void OptimizerAdapter::agree() {
  require_same_groups();
  take_options();
  const bool own_is_known = std::ranges::equal(
      std::as_const(own_).param_groups(), known_, [](const auto& group, const Group& known) {
        return same_tensors(group.params(), known.trained) &&
               type_of(group.options()) == type_of(*known.options);
      });
  if (!own_is_known) take_groups();
}

void OptimizerAdapter::save(torch::serialize::OutputArchive& archive) const {
  require_whole_("torch::save");
  // libtorch's save() is const, and what was changed here is to be saved.
  settle();
  const_cast<OptimizerAdapter*>(this)->agree();
  own_.save(archive);
}

void OptimizerAdapter::load(torch::serialize::InputArchive& archive) {
  require_whole_("torch::load");
  settle();
  require_same_groups();
  own_.load(archive);
  // What was loaded counts, whatever was changed here before.
  for (size_t i = 0; i < known_.size(); ++i) known_[i].options = param_groups_[i].options().clone();
  agree();
}

namespace detail {

torch::optim::Optimizer& own_optimizer(torch::optim::Optimizer& optimizer) {
  auto* adapter = dynamic_cast<OptimizerAdapter*>(&optimizer);
  if (adapter == nullptr) return optimizer;
  adapter->settle();
  adapter->agree();
  return adapter->own();
}

}  // namespace detail

}  // namespace accelerate
