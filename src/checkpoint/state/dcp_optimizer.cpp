#include "checkpoint/state/dcp_optimizer.h"

#include <torch/nn/module.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "checkpoint/model/pieced_source.h"

namespace accelerate::checkpoint {
namespace {

using OptionJson = nlohmann::ordered_json;
constexpr const char* kMembers = "params";

[[noreturn]] void refuse_optimizer(const std::filesystem::path& folder, const std::string& what) {
  throw CheckpointError({.what = what,
                         .where = folder.string(),
                         .hint = "make the optimizer with the parameters and groups that were "
                                 "saved"});
}

TorchValue option_of(const OptionJson& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (!json.is_array()) return {};
  TorchTuple tuple;
  for (const OptionJson& item : json) tuple.items.push_back(option_of(item));
  return tuple;
}

class DcpOptimizer {
 public:
  explicit DcpOptimizer(const std::filesystem::path& folder)
      : folder_(folder), source_(folder, files::Links::kInside) {
    const auto text = source_.param_groups();
    if (!text) refuse_optimizer(folder, "the folder does not hold the state of an optimizer");
    groups_ = OptionJson::parse(*text);
    for (size_t i = 0; i < groups_.size(); ++i) {
      const auto members = groups_[i].find(kMembers);
      if (members == groups_[i].end() || !members->is_array()) {
        refuse_optimizer(folder, "group " + std::to_string(i) + " does not name its parameters");
      }
      for (const OptionJson& name : *members) {
        if (!name.is_string()) {
          refuse_optimizer(folder, "the parameters of a group have numbers in place of names");
        }
        group_of_.emplace(name.get<std::string>(), i);
      }
    }
    for (const StoredTensor& tensor : source_.tensors()) {
      const size_t dot = tensor.name.rfind('.');
      if (dot == std::string::npos) continue;
      fields_[tensor.name.substr(0, dot)].push_back(tensor.name.substr(dot + 1));
    }
  }

  TorchDict state_of(const std::string& name) const {
    TorchDict state;
    const auto fields = fields_.find(name);
    if (fields == fields_.end()) return state;
    for (const std::string& field : fields->second) {
      state.add(field, source_.tensor(name + "." + field));
    }
    return state;
  }

  // The group that has all of these, and only these.
  TorchDict options_of(const std::vector<std::string>& names) const {
    if (names.empty()) refuse_optimizer(folder_, "a group without parameters is not known there");
    size_t group = groups_.size();
    for (const std::string& name : names) {
      const auto found = group_of_.find(name);
      if (found == group_of_.end()) {
        refuse_optimizer(folder_, "it has no state for the parameter " + in_quotes(name));
      }
      if (group != groups_.size() && found->second != group) {
        refuse_optimizer(
            folder_, in_quotes(name) + " was in another group than " + in_quotes(names.front()));
      }
      group = found->second;
    }
    if (groups_[group].at(kMembers).size() != names.size()) {
      refuse_optimizer(folder_, "the group of " + in_quotes(names.front()) + " had " +
                                    std::to_string(groups_[group].at(kMembers).size()) +
                                    " parameters, the optimizer has " +
                                    std::to_string(names.size()));
    }
    TorchDict options;
    for (const auto& [option, value] : groups_[group].items()) {
      if (option != kMembers) options.add(option, option_of(value));
    }
    return options;
  }

  size_t groups() const { return groups_.size(); }

 private:
  const std::filesystem::path& folder_;
  PiecedSource source_;
  OptionJson groups_;
  std::map<std::string, size_t> group_of_;
  std::map<std::string, std::vector<std::string>> fields_;  // by parameter
};

}  // namespace

ParameterNames names_of_parameters(const std::vector<std::shared_ptr<torch::nn::Module>>& models) {
  ParameterNames names;
  for (const auto& model : models) {
    for (const auto& item : model->named_parameters()) {
      names.emplace(item.value().unsafeGetTensorImpl(), item.key());
    }
  }
  return names;
}

TorchValue read_dcp_optimizer(const std::filesystem::path& folder,
                              const std::vector<at::Tensor>& parameters,
                              const std::vector<size_t>& group_sizes, const ParameterNames& names) {
  const DcpOptimizer saved(folder);
  if (saved.groups() != group_sizes.size()) {
    refuse_optimizer(folder, "it has " + std::to_string(saved.groups()) +
                                 " groups, the optimizer has " +
                                 std::to_string(group_sizes.size()));
  }
  TorchDict states;
  TorchValue::List groups;
  size_t number = 0;
  for (const size_t size : group_sizes) {
    std::vector<std::string> members;
    TorchValue::List numbers;
    for (size_t i = 0; i < size; ++i, ++number) {
      const auto name = names.find(parameters.at(number).unsafeGetTensorImpl());
      if (name == names.end()) {
        refuse_optimizer(folder, "parameter " + std::to_string(number) +
                                     " of the optimizer is in no prepared model, so its name is "
                                     "not known");
      }
      members.push_back(name->second);
      numbers.emplace_back(static_cast<int64_t>(number));
      TorchDict state = saved.state_of(name->second);
      if (state.size() > 0) states.add(static_cast<int64_t>(number), std::move(state));
    }
    TorchDict group = saved.options_of(members);
    group.add(kMembers, std::move(numbers));
    groups.emplace_back(std::move(group));
  }
  TorchDict state;
  state.add("state", std::move(states));
  state.add("param_groups", std::move(groups));
  return state;
}

}  // namespace accelerate::checkpoint
