// Plain values that hold the state of objects: what a checkpoint writes and reads.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "accelerate/export.h"

namespace accelerate {

class StateDict;
class StateValue;
// Declared here because a friend declaration cannot be exported; see the classes.
ACCELERATE_EXPORT bool operator==(const StateDict& left, const StateDict& right);
ACCELERATE_EXPORT bool operator==(const StateValue& left, const StateValue& right);

// Named values in the order in which they were set. A value type.
class ACCELERATE_EXPORT StateDict {
 public:
  using Entry = std::pair<std::string, StateValue>;

  StateDict() = default;
  StateDict(std::initializer_list<Entry> entries);

  // Adds the value, or replaces the one of that name.
  void set(std::string_view key, StateValue value);
  // nullptr where there is no such name; valid until the next set().
  const StateValue* find(std::string_view key) const;
  // Throws CheckpointError that names the key if it is missing.
  const StateValue& at(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const;

  // Equal names and values, in whatever order.
  friend bool operator==(const StateDict& left, const StateDict& right);

 private:
  std::vector<Entry> entries_;
};

// Nothing, a boolean, an integer, a number, a string, a list of values, a StateDict or a tensor.
// A value type, except that copies of a tensor share its memory: put a clone into a state that must
// not change. The reading calls throw CheckpointError if the value is of another kind.
class ACCELERATE_EXPORT StateValue {
 public:
  using List = std::vector<StateValue>;
  using Variant =
      std::variant<std::monostate, bool, int64_t, double, std::string, List, StateDict, at::Tensor>;

  StateValue() = default;
  // NOLINTBEGIN(google-explicit-constructor): a value is what it holds
  StateValue(bool value) : value_(value) {}
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) StateValue(Integer value)
      : value_(static_cast<int64_t>(value)) {}
  StateValue(double value) : value_(value) {}
  StateValue(const char* value) : value_(std::string(value)) {}
  StateValue(std::string value) : value_(std::move(value)) {}
  StateValue(List value) : value_(std::move(value)) {}
  StateValue(const std::vector<double>& numbers);
  StateValue(const std::vector<int64_t>& integers);
  StateValue(StateDict value) : value_(std::move(value)) {}
  StateValue(at::Tensor value) : value_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool as_bool() const;
  int64_t as_integer() const;
  double as_number() const;  // also of an integer
  const std::string& as_string() const;
  const List& as_list() const;
  const StateDict& as_dict() const;
  const at::Tensor& as_tensor() const;
  std::vector<double> as_numbers() const;
  std::vector<int64_t> as_integers() const;

  const Variant& variant() const { return value_; }

  // Tensors are equal if dtype, shape and bits are.
  friend bool operator==(const StateValue& left, const StateValue& right);

 private:
  template <class T>
  const T& get(const char* expected) const;

  Variant value_;
};

}  // namespace accelerate
