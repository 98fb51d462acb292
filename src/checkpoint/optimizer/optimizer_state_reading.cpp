#include "checkpoint/optimizer/optimizer_state_reading.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

namespace accelerate {
namespace {

// What Python keeps in a group for its schedulers, or for people.
constexpr std::array<std::string_view, 9> kNotOfTheOptimizer{
    "params", "param_names",   "initial_lr",   "max_lr",       "min_lr",
    "swa_lr", "base_momentum", "max_momentum", "initial_betas"};

// A number, or a tensor of one number: Python allows both for lr.
std::optional<double> number_of(const TorchValue& value) {
  if (const auto* number = std::get_if<double>(&value.variant())) return *number;
  if (const auto* integer = std::get_if<int64_t>(&value.variant())) {
    return static_cast<double>(*integer);
  }
  const auto* tensor = std::get_if<at::Tensor>(&value.variant());
  if (tensor == nullptr || tensor->numel() != 1 || tensor->is_complex()) return std::nullopt;
  return tensor->item<double>();
}

std::optional<int64_t> integer_of(const TorchValue& value) {
  const std::optional<double> number = number_of(value);
  constexpr double kFirstTooLarge = 9223372036854775808.0;  // 2 to the 63
  if (!number || std::trunc(*number) != *number || std::abs(*number) >= kFirstTooLarge) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*number);
}

std::string sizes_text(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

}  // namespace

const TorchValue* FieldReader::take(const char* name) {
  taken_.insert(name);
  const TorchValue* value = entries_.find(name);
  return value == nullptr || value->is_none() ? nullptr : value;
}

const TorchValue* FieldReader::take_needed(const char* name) {
  const TorchValue* value = take(name);
  if (value == nullptr) report(name, "is missing");
  return value;
}

std::vector<const TorchDict::Entry*> FieldReader::left_over() const {
  std::vector<const TorchDict::Entry*> left;
  for (const TorchDict::Entry& entry : entries_.entries()) {
    const auto* name = std::get_if<std::string>(&entry.first.variant());
    if (name != nullptr && taken_.contains(*name)) continue;
    if (!entry.second.is_none()) left.push_back(&entry);
  }
  return left;
}

void FieldReader::number(const char* name, double& field) {
  const TorchValue* value = take_needed(name);
  if (value == nullptr) return;
  if (const auto number = number_of(*value)) {
    field = *number;
  } else {
    report(name, std::string("is ") + value->kind() + ", not a number");
  }
}

void FieldReader::integer(const char* name, int64_t& field) {
  const TorchValue* value = take_needed(name);
  if (value == nullptr) return;
  if (const auto integer = integer_of(*value)) {
    field = *integer;
  } else {
    report(name, std::string("is ") + value->kind() + ", not an integer");
  }
}

void FieldReader::boolean(const char* name, bool& field) {
  const TorchValue* value = take_needed(name);
  if (value == nullptr) return;
  if (const auto* truth = std::get_if<bool>(&value->variant())) {
    field = *truth;
  } else {
    report(name, std::string("is ") + value->kind() + ", not a boolean");
  }
}

void FieldReader::two_numbers(const char* name, std::tuple<double, double>& field) {
  const TorchValue* value = take_needed(name);
  if (value == nullptr) return;
  const bool is_sequence = std::holds_alternative<TorchTuple>(value->variant()) ||
                           std::holds_alternative<TorchValue::List>(value->variant());
  if (is_sequence && value->as_sequence().size() == 2) {
    const auto first = number_of(value->as_sequence()[0]);
    const auto second = number_of(value->as_sequence()[1]);
    if (first && second) {
      field = {*first, *second};
      return;
    }
  }
  report(name, "is not a pair of numbers");
}

void FieldReader::optional_integer(const char* name, std::optional<int64_t>& field) {
  const TorchValue* value = take(name);
  if (value == nullptr) {
    field.reset();
  } else if (const auto integer = integer_of(*value)) {
    field = integer;
  } else {
    report(name, std::string("is ") + value->kind() + ", not an integer");
  }
}

void FieldReader::optional_text(const char* name, std::optional<std::string>& field) {
  const TorchValue* value = take(name);
  if (value == nullptr) {
    field.reset();
  } else if (const auto* text = std::get_if<std::string>(&value->variant())) {
    field = *text;
  } else {
    report(name, std::string("is ") + value->kind() + ", not a string");
  }
}

void GroupReader::only_false(const char* name) {
  const TorchValue* value = take(name);
  if (value == nullptr) return;
  const auto* truth = std::get_if<bool>(&value->variant());
  if (truth != nullptr && !*truth) return;
  report(name, "is not False: the optimizer of libtorch in C++ has no such option");
}

void GroupReader::decoupled_weight_decay(bool expected, double weight_decay) {
  const TorchValue* value = take("decoupled_weight_decay");
  if (value == nullptr || weight_decay == 0) return;  // both kinds are the same then
  const auto* truth = std::get_if<bool>(&value->variant());
  if (truth != nullptr && *truth == expected) return;
  report("decoupled_weight_decay", expected
                                       ? "is not True, as AdamW has it: the state is one of Adam"
                                       : "is not False, as Adam has it: the state is one of AdamW");
}

void GroupReader::finish() {
  for (const TorchDict::Entry* entry : left_over()) {
    const auto* name = std::get_if<std::string>(&entry->first.variant());
    if (name == nullptr) {
      report(entry->first.kind(), "as the name of an option is unknown");
      continue;
    }
    if (std::ranges::find(kNotOfTheOptimizer, *name) != kNotOfTheOptimizer.end()) continue;
    const auto* truth = std::get_if<bool>(&entry->second.variant());
    const bool says_nothing = (truth != nullptr && !*truth) ||
                              std::holds_alternative<std::string>(entry->second.variant());
    if (!says_nothing) report(*name, "is an option that the optimizer does not have");
  }
}

void ParamStateReader::step(const char* name, int64_t& field) {
  const TorchValue* value = take_needed(name);
  if (value == nullptr) return;
  const auto count = integer_of(*value);
  if (count && *count >= 0) {
    field = *count;
  } else {
    report(name, "is not a number of steps");
  }
}

bool ParamStateReader::is_usable(const char* name, const TorchValue& value) const {
  if (!value.is_tensor()) {
    report(name, std::string("is ") + value.kind() + ", not a tensor");
    return false;
  }
  if (value.as_tensor().is_complex() != parameter_.is_complex()) {
    report(name, std::string("is of the type ") + c10::toString(value.as_tensor().scalar_type()));
    return false;
  }
  return true;
}

bool ParamStateReader::is_usable_of_any_shape(const char* name, const TorchValue& value) {
  if (!is_usable(name, value)) return false;
  if (budget_.take(value.as_tensor())) return true;
  report(name,
         "describes far more than the file holds: shape " + sizes_text(value.as_tensor().sizes()));
  return false;
}

at::Tensor ParamStateReader::placed(const at::Tensor& value) const {
  return at::empty_like(value, parameter_.options().requires_grad(false)).copy_(value);
}

void ParamStateReader::tensor(const char* name, at::Tensor& field, bool is_needed) {
  const TorchValue* value = is_needed ? take_needed(name) : take(name);
  if (value == nullptr || !is_usable(name, *value)) return;
  const at::Tensor& tensor = value->as_tensor();
  if (tensor.sizes() != parameter_.sizes()) {
    return report(name, "has the shape " + sizes_text(tensor.sizes()));
  }
  if (!copies_) return;
  // Float32 is not given up for half precision: flat updates keep it for such parameters.
  const bool is_wider = parameter_.is_floating_point() && parameter_.element_size() == 2 &&
                        tensor.scalar_type() == at::kFloat;
  const auto type = is_wider ? at::kFloat : parameter_.scalar_type();
  // The fused updates want the layout of the parameter.
  field = at::empty_like(parameter_, parameter_.options().dtype(type).requires_grad(false),
                         at::MemoryFormat::Preserve)
              .copy_(tensor);
}

void ParamStateReader::free_tensor(const char* name, at::Tensor& field) {
  const TorchValue* value = take(name);
  if (value == nullptr) return;
  if (const auto number = value->is_tensor() ? std::nullopt : number_of(*value)) {
    // Python begins with a plain number where C++ has a tensor.
    field = at::full({}, *number, parameter_.options().requires_grad(false));
    return;
  }
  if (is_usable_of_any_shape(name, *value) && copies_) field = placed(value->as_tensor());
}

void ParamStateReader::free_tensors(const char* name, std::deque<at::Tensor>& field) {
  const TorchValue* value = take(name);
  if (value == nullptr) return;
  if (!std::holds_alternative<TorchValue::List>(value->variant())) {
    return report(name, std::string("is ") + value->kind() + ", not a list");
  }
  for (const TorchValue& item : value->as_sequence()) {
    if (!is_usable_of_any_shape(name, item)) return;
    if (copies_) field.push_back(placed(item.as_tensor()));
  }
}

void ParamStateReader::optional_tensors(const char* name,
                                        std::optional<std::vector<at::Tensor>>& field) {
  const TorchValue* value = take(name);
  if (value == nullptr) return;
  if (!std::holds_alternative<TorchValue::List>(value->variant())) {
    return report(name, std::string("is ") + value->kind() + ", not a list");
  }
  std::vector<at::Tensor> tensors;
  for (const TorchValue& item : value->as_sequence()) {
    if (!item.is_none() && !is_usable_of_any_shape(name, item)) return;
    tensors.push_back(item.is_none() || !copies_ ? at::Tensor() : placed(item.as_tensor()));
  }
  field = std::move(tensors);
}

void ParamStateReader::finish() {
  for (const TorchDict::Entry* entry : left_over()) {
    const auto* name = std::get_if<std::string>(&entry->first.variant());
    report(name == nullptr ? entry->first.kind() : *name, "is not part of this optimizer's state");
  }
}

}  // namespace accelerate
