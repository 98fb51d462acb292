#include "checkpoint/model/load_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>
#include <set>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "checkpoint/model/shared_tensors.h"
#include "checkpoint/name_list.h"
#include "compat/deferred.h"
#include "compat/touched.h"

namespace accelerate::checkpoint {
namespace {

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// The device of the longest name in the map that is `name` or leads to it.
std::optional<c10::Device> lookup(const DeviceMap& map, std::string_view name) {
  while (true) {
    const auto found = map.find(std::string(name));
    if (found != map.end()) return found->second;
    if (name.empty()) return std::nullopt;
    const size_t dot = name.rfind('.');
    name = dot == name.npos ? std::string_view() : name.substr(0, dot);
  }
}

// "cuda" is the device that is current, "cuda:0" a certain one.
bool is_on(const at::Tensor& tensor, c10::Device device) {
  return tensor.device().type() == device.type() &&
         (!device.has_index() || tensor.device().index() == device.index());
}

// Its elements follow one another in memory of the host.
bool is_readable_into(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

LoadPlan::LoadPlan(ModelStateDict state, const LoadModelOptions& options)
    : state_(std::move(state)), tied_(drop_aliases(state_).aliases), options_(options) {}

void LoadPlan::add(const TensorSource& source, size_t file, const CheckpointFiles& files) {
  std::map<std::string, const StoredTensor*> stored;
  for (const StoredTensor& tensor : source.tensors()) stored.emplace(tensor.name, &tensor);
  for (const auto& [name, place] : files.placed) {
    if (place != file || stored.contains(name) || source.aliases().contains(name)) continue;
    throw CheckpointError({.what = "the index places tensor " + in_quotes(name) +
                                   " in this file, but it is not there",
                           .where = files.files[file].string(),
                           .hint = "the files are of different models: save or download it again"});
  }
  for (const StoredTensor& tensor : source.tensors()) {
    const auto placed = files.placed.find(tensor.name);
    // Another file has the one that counts.
    if (placed != files.placed.end() && placed->second != file) continue;
    note(tensor.name, tensor, file, /*is_alias=*/false);
  }
  for (const auto& [alias, name] : source.aliases()) {
    note(alias, *stored.at(name), file, /*is_alias=*/true);
  }
}

void LoadPlan::note(const std::string& stored, const StoredTensor& tensor, size_t file,
                    bool is_alias) {
  const std::string name = options_.key_mapping ? options_.key_mapping(stored) : stored;
  if (name.empty() && !stored.empty()) return;
  if (!state_.contains(name)) {
    // An alias is an offer: metadata can look like one.
    if (!is_alias) unexpected_.push_back(name);
    return;
  }
  Source source{.file = file, .stored = tensor.name, .tensor = tensor, .is_alias = is_alias};
  const auto [other, is_new] = sources_.emplace(name, source);
  if (is_new || is_alias) return;
  if (!other->second.is_alias && options_.key_mapping) {
    throw UsageError({.what = "key_mapping makes " + in_quotes(other->second.stored) + " and " +
                              in_quotes(stored) + " the same tensor " + in_quotes(name),
                      .hint = "let it return an empty string for the one to leave out"});
  }
  other->second = std::move(source);
}

LoadReport LoadPlan::report() const {
  const auto first_name = [&](const std::string& name) {
    const auto tied = tied_.find(name);
    return tied == tied_.end() ? name : tied->second;
  };
  std::set<std::string> loaded;
  for (const auto& [name, source] : sources_) loaded.insert(first_name(name));
  LoadReport report{.unexpected_keys = unexpected_};
  for (const auto& item : state_) {
    if (!loaded.contains(first_name(item.key()))) report.missing_keys.push_back(item.key());
  }
  return report;
}

LoadReport LoadPlan::check(const std::string& where) const {
  LoadReport result = report();
  check_tensors(where);
  if (options_.strict) check_keys(result, where);
  if (!options_.device_map.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, source] : sources_) names.push_back(name);
    check_devices(names);
  }
  return result;
}

void LoadPlan::check_keys(const LoadReport& report, const std::string& where) const {
  if (report.missing_keys.empty() && report.unexpected_keys.empty()) return;
  std::string what = "the checkpoint does not hold the tensors of the model";
  if (!report.missing_keys.empty()) what += "; missing: " + name_list(report.missing_keys);
  if (!report.unexpected_keys.empty()) what += "; unexpected: " + name_list(report.unexpected_keys);
  throw CheckpointError({.what = what,
                         .where = where,
                         .hint = "load it into the model that was saved, rename with key_mapping, "
                                 "or leave strict out"});
}

void LoadPlan::check_tensors(const std::string& where) const {
  std::vector<std::string> wrong;
  // In the order of the model.
  for (const auto& item : state_) {
    const auto found = sources_.find(item.key());
    if (found == sources_.end()) continue;
    const StoredTensor& tensor = found->second.tensor;
    if (item.value().sizes() != at::IntArrayRef(tensor.shape)) {
      wrong.push_back(item.key() + " " + shape_text(tensor.shape) + " in the file, " +
                      shape_text(item.value().sizes()) + " in the model");
    } else if (c10::isComplexType(tensor.dtype) && !item.value().is_complex()) {
      wrong.push_back(item.key() + " complex in the file, real in the model");
    }
  }
  if (!wrong.empty()) {
    throw CheckpointError({.what = "the checkpoint does not fit the model: " + name_list(wrong),
                           .where = where,
                           .hint = "load it into the model that was saved"});
  }
  for (const auto& [name, source] : sources_) {
    if (!state_[name].is_meta() || compat::is_deferred(state_[name])) continue;
    throw UsageError({.what = "tensor " + in_quotes(name) +
                              " of the model is a meta tensor, "
                              "and a libtorch module cannot allocate memory for it",
                      .hint = "construct the model on the CPU, or inside of init_empty_weights()"});
  }
}

void LoadPlan::check_devices() const {
  if (!options_.device_map.empty()) check_devices(state_.keys());
}

void LoadPlan::check_devices(const std::vector<std::string>& names) const {
  std::vector<std::string> without;
  for (const std::string& name : names) {
    if (!lookup(options_.device_map, name)) without.push_back(name);
  }
  if (!without.empty()) {
    throw UsageError({.what = "the device map gives no device to " + name_list(without),
                      .hint = "add \"\" for all that is not named"});
  }
  for (const auto& [other, first] : tied_) {
    const auto one = lookup(options_.device_map, first);
    const auto two = lookup(options_.device_map, other);
    if (!one || !two || *one == *two) continue;
    throw UsageError({.what = first + " and " + other +
                              " are one tensor, but the device map puts them on " + one->str() +
                              " and " + two->str(),
                      .hint = "put both on one device"});
  }
}

c10::Device LoadPlan::device_of(const std::string& name) const {
  return lookup(options_.device_map, name).value_or(state_[name].device());
}

at::ScalarType LoadPlan::dtype_of(const std::string& name) const {
  const at::ScalarType present = state_[name].scalar_type();
  if (!options_.dtype || !c10::isFloatingType(present)) return present;
  if (*options_.dtype == at::kHalf) {
    const auto keeps = [&](const std::string& kept) {
      return name == kept || name.find(kept + ".") != name.npos;
    };
    const auto& modules = options_.keep_in_fp32_modules;
    if (std::any_of(modules.begin(), modules.end(), keeps)) return at::kFloat;
  }
  return *options_.dtype;
}

void LoadPlan::put(const std::string& name, const TensorSource& source,
                   const StoredTensor& stored) const {
  at::Tensor target = state_[name];
  const c10::Device device = device_of(name);
  const at::ScalarType dtype = dtype_of(name);
  if (compat::is_deferred(target) && device.is_meta()) {  // whoever wants values reads them then
    compat::replace_data(target, compat::make_deferred(target, dtype, source.tensor(stored.name)));
    return;
  }
  if (compat::is_deferred(target)) {
    at::Tensor values = at::empty(target.sizes(), target.options().dtype(dtype).device(device));
    values.copy_(source.tensor(stored.name));
    compat::replace_data(target, values);
    return;
  }
  if (!is_on(target, device) || target.scalar_type() != dtype) {
    at::Tensor moved = at::empty(target.sizes(), target.options().dtype(dtype).device(device));
    moved.copy_(source.tensor(stored.name));
    target.set_data(moved);
    return;
  }
  if (!is_readable_into(target) || stored.dtype != dtype) {
    target.copy_(source.tensor(stored.name));
    return;
  }
  // What copy_() does, by a reader that gives the pages of the file back.
  target.unsafeGetTensorImpl()->bump_version();
  source.read(stored.name, {static_cast<std::byte*>(target.data_ptr()), target.nbytes()});
}

void LoadPlan::load(const TensorSource& source, size_t file, const std::string& where) const {
  const c10::NoGradGuard no_grad;
  std::map<std::string_view, std::vector<const std::string*>> names_of;
  for (const auto& [name, from] : sources_) {
    if (from.file != file) continue;
    // The first of two tied tensors is loaded in place of the other too.
    const auto tied = tied_.find(name);
    if (from.is_alias && tied != tied_.end() && sources_.contains(tied->second)) continue;
    names_of[from.stored].push_back(&name);
  }
  // An archive is opened a second time here: it need not be the one that was checked.
  std::map<std::string_view, const StoredTensor*> stored;
  for (const StoredTensor& tensor : source.tensors()) stored.emplace(tensor.name, &tensor);
  for (const auto& [name, targets] : names_of) {
    const auto found = stored.find(name);
    if (found != stored.end() && *found->second == sources_.at(*targets.front()).tensor) continue;
    throw CheckpointError({.what = "tensor " + in_quotes(name) +
                                   " is no longer the one that was checked before the load",
                           .where = where,
                           .hint = "another process is writing to the file: load it again"});
  }
  for (const StoredTensor& tensor : source.tensors()) {
    const auto names = names_of.find(tensor.name);
    if (names == names_of.end()) continue;
    for (const std::string* name : names->second) put(*name, source, tensor);
    source.forget(tensor.name);
  }
}

void LoadPlan::finish() const {
  const c10::NoGradGuard no_grad;
  const auto tie = [&](const std::string& name, const std::string& to) {
    at::Tensor target = state_[name];
    const at::Tensor& tensor = state_[to];
    if (memory_of(target) == memory_of(tensor)) return;
    if (target.is_meta()) {
      compat::replace_data(target, tensor.detach());
    } else {
      target.set_data(tensor.detach());
    }
  };
  for (const auto& [other, first] : tied_) {
    if (sources_.contains(other) && !sources_.contains(first)) tie(first, other);
  }
  for (const auto& [other, first] : tied_) tie(other, first);
}

void LoadPlan::move_all() const {
  const c10::NoGradGuard no_grad;
  for (const auto& item : state_) {
    const at::Tensor& target = item.value();
    const c10::Device device = device_of(item.key());
    if (!is_on(target, device)) target.set_data(target.detach().to(device));
  }
  finish();
}

}  // namespace accelerate::checkpoint
