#include "accelerate/optimizer_state.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <sstream>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/prepared_optimizer.h"
#include "checkpoint/optimizer/optimizer_state_family.h"

namespace accelerate {
namespace {

using Tensors = OptimizerFamily::Tensors;

const OptimizerFamily& require_family(const torch::optim::Optimizer& optimizer) {
  if (const OptimizerFamily* family = find_optimizer_family(optimizer)) return *family;
  throw CheckpointError(
      {.what = "the state of this optimizer cannot be saved or loaded: its type is not known",
       .where = c10::demangle(typeid(optimizer).name()),
       .hint = "use SGD, Adam, AdamW, Adagrad, RMSprop or LBFGS of torch::optim, or save what the "
               "optimizer keeps as an object of your own"});
}

// Behind what a prepared optimizer converts to.
const torch::optim::Optimizer& own_optimizer_of(const torch::optim::Optimizer& optimizer) {
  return detail::own_optimizer(const_cast<torch::optim::Optimizer&>(optimizer));
}

// A parameter of the optimizer.
struct Place {
  size_t group;
  at::Tensor parameter;
};

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

// What Python has for a parameter without a gradient so far.
bool holds_nothing(const TorchDict& entries) {
  return std::ranges::all_of(entries.entries(),
                             [](const TorchDict::Entry& entry) { return entry.second.is_none(); });
}

// Reads a saved state for an optimizer, without changing it.
class Loading {
 public:
  using OptionsPointer = std::unique_ptr<torch::optim::OptimizerOptions>;
  using StatePointer = std::unique_ptr<torch::optim::OptimizerParamState>;

  Loading(const torch::optim::Optimizer& optimizer, const TorchValue& state,
          const std::string& where)
      : optimizer_(optimizer), family_(require_family(optimizer)), state_(state), where_(where) {}

  void read(Tensors tensors) {
    const at::NoGradGuard no_grad;
    const TorchDict* dict = dict_of(state_, "the state");
    const TorchValue* groups = dict == nullptr ? nullptr : entry(*dict, "param_groups");
    const TorchValue* states = dict == nullptr ? nullptr : entry(*dict, "state");
    if (groups != nullptr) read_groups(*groups);
    // Without the groups it is not known whose the states are.
    if (problems_.empty() && states != nullptr) read_states(*states, tensors);
    problems_.throw_if_any(family_.name(), where_);
  }

  const OptimizerFamily& family() const { return family_; }
  const std::vector<OptionsPointer>& options() const { return options_; }
  std::vector<std::pair<void*, StatePointer>>& states() { return states_; }

 private:
  const TorchDict* dict_of(const TorchValue& value, const std::string& subject) {
    if (value.is_dict()) return &value.as_dict();
    problems_.add(subject, std::string("is ") + value.kind() + ", not a dict");
    return nullptr;
  }

  const TorchValue* entry(const TorchDict& dict, const char* name) {
    const TorchValue* value = dict.find(name);
    if (value == nullptr) problems_.add("the state", std::string("has no '") + name + "'");
    return value;
  }

  void read_groups(const TorchValue& saved) {
    const auto* list = std::get_if<TorchValue::List>(&saved.variant());
    if (list == nullptr) return problems_.add("'param_groups'", "is not a list");
    const auto& own = optimizer_.param_groups();
    if (list->size() != own.size()) {
      return problems_.add("'param_groups'", "has " + std::to_string(list->size()) +
                                                 " groups, the optimizer has " +
                                                 std::to_string(own.size()));
    }
    for (size_t i = 0; i < own.size(); ++i) {
      const std::string subject = "group " + std::to_string(i);
      const TorchDict* group = dict_of((*list)[i], subject);
      if (group == nullptr) continue;
      options_.push_back(family_.read_group(*group, own[i].options(), subject, problems_));
      read_members(*group, i, subject);
    }
  }

  // Which saved number stands for which parameter: the order decides, as in Python.
  void read_members(const TorchDict& group, size_t index, const std::string& subject) {
    const std::vector<at::Tensor>& own = optimizer_.param_groups()[index].params();
    const TorchValue* members = group.find("params");
    const auto* list =
        members == nullptr ? nullptr : std::get_if<TorchValue::List>(&members->variant());
    if (list == nullptr) return problems_.add(subject, "has no list 'params'");
    if (list->size() != own.size()) {
      return problems_.add(subject, "has " + std::to_string(list->size()) +
                                        " parameters, the optimizer has " +
                                        std::to_string(own.size()));
    }
    for (size_t i = 0; i < own.size(); ++i) {
      const auto* number = std::get_if<int64_t>(&(*list)[i].variant());
      if (number == nullptr ||
          !places_.emplace(*number, Place{.group = index, .parameter = own[i]}).second) {
        problems_.add(subject, "does not name its parameters by distinct integers");
      }
    }
  }

  void read_states(const TorchValue& saved, Tensors tensors) {
    const TorchDict* states = dict_of(saved, "'state'");
    if (states == nullptr) return;
    for (const auto& [key, value] : states->entries()) {
      const auto* number = std::get_if<int64_t>(&key.variant());
      const auto place = number == nullptr ? places_.end() : places_.find(*number);
      if (place == places_.end()) {
        problems_.add(number == nullptr ? key.kind() : "parameter " + std::to_string(*number),
                      "has a state but is in no group");
        continue;
      }
      const auto& [group, parameter] = place->second;
      const std::string subject = "parameter " + std::to_string(*number) + " (group " +
                                  std::to_string(group) + ", shape " + shape_of(parameter) + ")";
      const TorchDict* entries = dict_of(value, subject);
      if (entries == nullptr || holds_nothing(*entries)) continue;
      states_.emplace_back(
          parameter.unsafeGetTensorImpl(),
          family_.read_state(*entries, parameter, *options_[group], tensors, subject, problems_));
    }
    if (family_.needs_all_states() && problems_.empty() && states_.size() != places_.size()) {
      problems_.add("'state'", "has " + std::to_string(states_.size()) + " parameters, " +
                                   std::to_string(places_.size()) + " are needed");
    }
  }

  const torch::optim::Optimizer& optimizer_;
  const OptimizerFamily& family_;
  const TorchValue& state_;
  const std::string& where_;
  StateProblems problems_;
  std::unordered_map<int64_t, Place> places_;
  std::vector<OptionsPointer> options_;
  std::vector<std::pair<void*, StatePointer>> states_;
};

}  // namespace

void StateProblems::throw_if_any(const std::string& optimizer, const std::string& where) const {
  if (lines_.empty()) return;
  constexpr size_t kMost = 100;
  std::string what = "the saved state does not fit the optimizer, " + optimizer + ":";
  for (size_t i = 0; i < lines_.size() && i < kMost; ++i) what += "\n    " + lines_[i];
  if (lines_.size() > kMost) {
    what += "\n    and " + std::to_string(lines_.size() - kMost) + " more";
  }
  throw CheckpointError({.what = what,
                         .where = where,
                         .hint = "make the optimizer with the kind, the parameters and the groups "
                                 "that were saved"});
}

TorchValue optimizer_state(const torch::optim::Optimizer& given,
                           const OptimizerStateOptions& options) {
  const torch::optim::Optimizer& optimizer = own_optimizer_of(given);
  const OptimizerFamily& family = require_family(optimizer);
  const auto& own_groups = optimizer.param_groups();
  if (!options.group_entries.empty() && options.group_entries.size() != own_groups.size()) {
    throw UsageError({.what = "entries for " + std::to_string(options.group_entries.size()) +
                              " parameter groups are given, the optimizer has " +
                              std::to_string(own_groups.size()),
                      .where = "OptimizerStateOptions::group_entries",
                      .hint = "give one dict for each group, or none at all"});
  }
  TorchDict states;
  TorchValue::List groups;
  int64_t number = 0;
  for (size_t i = 0; i < own_groups.size(); ++i) {
    TorchDict group = family.group_entries(own_groups[i].options());
    if (!options.group_entries.empty()) {
      for (const auto& [key, value] : options.group_entries[i].entries()) group.set(key, value);
    }
    TorchValue::List members;
    for (const at::Tensor& parameter : own_groups[i].params()) {
      const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state != optimizer.state().end()) {
        states.add(number, family.state_entries(*state->second));
      }
      members.emplace_back(number++);
    }
    group.add("params", std::move(members));
    groups.emplace_back(std::move(group));
  }
  TorchDict state;
  state.add("state", std::move(states));
  state.add("param_groups", std::move(groups));
  return state;
}

void check_optimizer_state(const torch::optim::Optimizer& optimizer, const TorchValue& state,
                           const std::string& where) {
  Loading(own_optimizer_of(optimizer), state, where).read(Tensors::kCheck);
}

void load_optimizer_state(torch::optim::Optimizer& given, const TorchValue& state,
                          const std::string& where) {
  torch::optim::Optimizer& optimizer = detail::own_optimizer(given);
  Loading(optimizer, state, where).read(Tensors::kCheck);
  Loading loading(optimizer, state, where);
  loading.read(Tensors::kCopy);
  // From here on nothing fails.
  for (size_t i = 0; i < loading.options().size(); ++i) {
    loading.family().assign(optimizer.param_groups()[i].options(), *loading.options()[i]);
  }
  optimizer.state().clear();
  for (auto& [parameter, own] : loading.states()) optimizer.state()[parameter] = std::move(own);
}

}  // namespace accelerate
