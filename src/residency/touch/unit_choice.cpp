#include "residency/touch/unit_choice.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <typeindex>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::residency {
namespace {

using torch::nn::Module;
using ModuleNames = std::set<std::string>;

bool is_list(const Module& module) {
  return module.as<torch::nn::ModuleListImpl>() != nullptr ||
         module.as<torch::nn::ModuleDictImpl>() != nullptr;
}

bool holds_members(const Module& module) {
  return is_list(module) || module.as<torch::nn::SequentialImpl>() != nullptr;
}

int64_t numel_of(const Module& module, bool recurse = true) {
  std::unordered_set<const void*> seen;
  int64_t numel = 0;
  for (const at::Tensor& parameter : module.parameters(recurse)) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) numel += parameter.numel();
  }
  return numel;
}

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + '.' + name;
}

// Shares of the model from which on it counts what a module has: 1 / so much.
constexpr int64_t kLargeMember = 4;
constexpr int64_t kLargeModule = 20;

// The blocks among the children of a module.
class Blocks {
 public:
  Blocks(const Module& module, int64_t total) : are_members_(holds_members(module)) {
    if (are_members_) return;
    std::map<std::type_index, std::set<const Module*>> by_type;
    for (const auto& child : module.named_children()) {
      const Module& inner = *child.value();
      const bool is_composed = !inner.children().empty() && !holds_members(inner);
      if (is_composed && typeid(inner) != typeid(Module)) by_type[typeid(inner)].insert(&inner);
    }
    for (const auto& [type, siblings] : by_type) {
      int64_t numel = 0;
      for (const Module* sibling : siblings) numel += numel_of(*sibling);
      if (siblings.size() > 1 && numel * kLargeModule >= total) types_.insert(type);
    }
  }
  bool contains(const Module& child) const {
    return are_members_ || types_.contains(typeid(child));
  }
  bool any() const { return are_members_ || !types_.empty(); }

 private:
  bool are_members_;
  std::set<std::type_index> types_;
};

bool has_blocks_inside(const Module& module, int64_t total) {
  return std::ranges::any_of(module.modules(), [total](const auto& inner) {
    return Blocks(*inner, total).any() && numel_of(*inner) > 0;
  });
}

void choose_by_structure(const Module& module, const std::string& path, int64_t total,
                         ModuleNames& chosen) {
  const Blocks blocks(module, total);
  for (const auto& child : module.named_children()) {
    const Module& inner = *child.value();
    const std::string inner_path = join(path, child.key());
    const auto is_coarse = [&] {
      return numel_of(inner) * kLargeMember > total && has_blocks_inside(inner, total);
    };
    if (blocks.contains(inner) && !is_coarse()) {
      chosen.insert(inner_path);
      continue;
    }
    if (numel_of(inner, /*recurse=*/false) * kLargeModule >= total) chosen.insert(inner_path);
    choose_by_structure(inner, inner_path, total, chosen);
  }
}

// Returns how many elements belong to no unit yet.
int64_t choose_by_size(const Module& module, const std::string& path, int64_t min_numel,
                       ModuleNames& chosen) {
  int64_t rest = numel_of(module, /*recurse=*/false);
  for (const auto& child : module.named_children()) {
    rest += choose_by_size(*child.value(), join(path, child.key()), min_numel, chosen);
  }
  if (rest < min_numel || is_list(module) || path.empty()) return rest;
  chosen.insert(path);
  return 0;
}

// "ns::BlockImpl" is "Block".
std::string class_name(const Module& module) {
  std::string name = module.name();
  name = name.substr(0, name.find('<'));
  const size_t scope = name.rfind("::");
  if (scope != std::string::npos) name = name.substr(scope + 2);
  if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

bool fits(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.starts_with("**")) {
    for (size_t skipped = 0; skipped <= name.size(); ++skipped) {
      if (fits(pattern.substr(2), name.substr(skipped))) return true;
    }
    return false;
  }
  if (pattern[0] == '*') {
    for (size_t skipped = 0; skipped <= name.size(); ++skipped) {
      if (fits(pattern.substr(1), name.substr(skipped))) return true;
      if (skipped < name.size() && name[skipped] == '.') return false;
    }
    return false;
  }
  return !name.empty() && pattern[0] == name[0] && fits(pattern.substr(1), name.substr(1));
}

// Of a parameter "a.b.weight": the longest of the chosen names that it lies in; "" for none.
std::string owner_of(const std::string& name, const ModuleNames& chosen) {
  for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
       dot = name.rfind('.', dot - 1)) {
    const std::string path = name.substr(0, dot);
    if (chosen.contains(path)) return path;
  }
  return {};
}

std::vector<UnitParameters> make_units(const Module& module, const ModuleNames& chosen,
                                       const UnitChoice& choice) {
  using Kind = std::tuple<std::string, at::ScalarType, std::string>;  // owner, dtype, device
  std::vector<UnitParameters> units;
  std::map<Kind, size_t> numbers;
  std::unordered_set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    if (parameter.layout() != c10::kStrided || !parameter.is_floating_point()) continue;
    if (parameter.numel() < choice.persistence_threshold) continue;
    const std::string owner = owner_of(item.key(), chosen);
    const c10::Device device =
        parameter.is_meta() && choice.device ? *choice.device : parameter.device();
    const auto [place, is_new] =
        numbers.try_emplace(Kind(owner, parameter.scalar_type(), device.str()), units.size());
    if (is_new) units.push_back({.name = owner.empty() ? "rest" : owner});
    units[place->second].parameters.push_back(parameter);
    units[place->second].names.push_back(item.key());
  }
  return units;
}

}  // namespace

std::vector<UnitParameters> units_by_structure(const Module& module, const UnitChoice& choice) {
  ModuleNames chosen;
  choose_by_structure(module, "", std::max<int64_t>(numel_of(module), 1), chosen);
  return make_units(module, chosen, choice);
}

std::vector<UnitParameters> units_by_size(const Module& module, int64_t min_numel,
                                          const UnitChoice& choice) {
  ModuleNames chosen;
  choose_by_size(module, "", min_numel, chosen);
  return make_units(module, chosen, choice);
}

std::vector<UnitParameters> units_by_name(const Module& module,
                                          const std::vector<std::string>& patterns,
                                          const UnitChoice& choice) {
  ModuleNames chosen;
  std::set<std::string> classes;
  std::set<std::string> without_match(patterns.begin(), patterns.end());
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    const std::string name = class_name(*item.value());
    classes.insert(name);
    for (const std::string& pattern : patterns) {
      if (pattern != name && pattern != name + "Impl" && !fits(pattern, item.key())) continue;
      chosen.insert(item.key());
      without_match.erase(pattern);
    }
  }
  if (!without_match.empty()) {
    std::string known;
    for (const std::string& name : classes) known += (known.empty() ? "" : ", ") + name;
    throw UsageError({.what = "no module is called '" + *without_match.begin() +
                              "', by its class or by its name",
                      .where = "units",
                      .hint = "the classes in this model are " + known});
  }
  return make_units(module, chosen, choice);
}

std::vector<UnitParameters> units_of_modules(const Module& module,
                                             const std::vector<const Module*>& modules,
                                             const UnitChoice& choice) {
  ModuleNames chosen;
  const auto all = module.named_modules("", /*include_self=*/false);
  for (const Module* wanted : modules) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const auto& item) { return item.value().get() == wanted; });
    if (found == all.end()) {
      throw UsageError({.what = wanted->name() + " is not a part of " + module.name(),
                        .where = "units",
                        .hint = "name modules that are registered in the model"});
    }
    chosen.insert(found->key());
  }
  return make_units(module, chosen, choice);
}

}  // namespace accelerate::residency
