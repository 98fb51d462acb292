// Writes the fields of an optimizer as Python's entries.
#pragma once

#include <ATen/ops/full.h>

#include <deque>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "accelerate/torch_archive.h"

namespace accelerate {

class FieldWriter {
 public:
  explicit FieldWriter(TorchDict& entries) : entries_(entries) {}

  void number(const char* name, double value) { entries_.add(name, value); }
  void integer(const char* name, int64_t value) { entries_.add(name, value); }
  void boolean(const char* name, bool value) { entries_.add(name, value); }
  void two_numbers(const char* name, const std::tuple<double, double>& values) {
    entries_.add(name, TorchTuple{{std::get<0>(values), std::get<1>(values)}});
  }
  void optional_integer(const char* name, const std::optional<int64_t>& value) {
    entries_.add(name, value ? TorchValue(*value) : TorchValue());
  }
  void optional_text(const char* name, const std::optional<std::string>& value) {
    entries_.add(name, value ? TorchValue(*value) : TorchValue());
  }
  void only_false(const char* name) { entries_.add(name, false); }
  void without_effect(const char* name, TorchValue value) { entries_.add(name, std::move(value)); }
  void decoupled_weight_decay(bool value, double /*weight_decay*/) {
    entries_.add("decoupled_weight_decay", value);
  }

  // float32, as in Python; float64 where float32 would round the count.
  void step(const char* name, int64_t value) {
    const bool fits = static_cast<int64_t>(static_cast<float>(value)) == value;
    entries_.add(name, at::full({}, value, fits ? at::kFloat : at::kDouble));
  }
  void tensor(const char* name, const at::Tensor& value, bool /*is_needed*/) {
    if (value.defined()) entries_.add(name, value);
  }
  void free_tensor(const char* name, const at::Tensor& value) {
    tensor(name, value, /*is_needed=*/false);
  }
  void free_tensors(const char* name, const std::deque<at::Tensor>& values) {
    entries_.add(name, TorchValue::List(values.begin(), values.end()));
  }
  void optional_tensors(const char* name, const std::optional<std::vector<at::Tensor>>& values) {
    if (!values) return;
    TorchValue::List list;
    for (const at::Tensor& value : *values) {
      list.push_back(value.defined() ? TorchValue(value) : TorchValue());
    }
    entries_.add(name, std::move(list));
  }

 private:
  TorchDict& entries_;
};

}  // namespace accelerate
