#include "accelerate/state_dict.h"

#include <algorithm>
#include <array>

#include "checkpoint/archive/saved_value.h"

namespace accelerate {
namespace {

const char* kind_of(const StateValue& value) {
  static constexpr std::array<const char*, std::variant_size_v<StateValue::Variant>> kNames{
      "nothing",  "a boolean", "an integer",   "a number",
      "a string", "a list",    "a dictionary", "a tensor"};
  return kNames[value.variant().index()];
}

template <class T>
StateValue::List list_of(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

template <class T, class Read>
std::vector<T> values_of(const StateValue::List& list, Read read) {
  std::vector<T> values;
  values.reserve(list.size());
  for (const StateValue& value : list) values.push_back((value.*read)());
  return values;
}

}  // namespace

StateDict::StateDict(std::initializer_list<Entry> entries) : entries_(entries) {}

void StateDict::set(std::string_view key, StateValue value) {
  for (auto& [known, held] : entries_) {
    if (known != key) continue;
    held = std::move(value);
    return;
  }
  entries_.emplace_back(key, std::move(value));
}

const StateValue* StateDict::find(std::string_view key) const {
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.first == key; });
  return found == entries_.end() ? nullptr : &found->second;
}

const StateValue& StateDict::at(std::string_view key) const {
  if (const StateValue* value = find(key)) return *value;
  checkpoint::refuse_missing_key(key);
}

size_t StateDict::size() const { return entries_.size(); }

bool operator==(const StateDict& left, const StateDict& right) {
  return left.size() == right.size() &&
         std::ranges::all_of(left.entries_, [&](const StateDict::Entry& entry) {
           const StateValue* other = right.find(entry.first);
           return other != nullptr && *other == entry.second;
         });
}

StateValue::StateValue(const std::vector<double>& numbers) : value_(list_of(numbers)) {}
StateValue::StateValue(const std::vector<int64_t>& integers) : value_(list_of(integers)) {}

template <class T>
const T& StateValue::get(const char* expected) const {
  return checkpoint::get_saved<T>(value_, kind_of(*this), expected);
}

bool StateValue::as_bool() const { return get<bool>("a boolean"); }
int64_t StateValue::as_integer() const { return get<int64_t>("an integer"); }
double StateValue::as_number() const {
  return checkpoint::get_saved_number(value_, kind_of(*this));
}
const std::string& StateValue::as_string() const { return get<std::string>("a string"); }
const StateValue::List& StateValue::as_list() const { return get<List>("a list"); }
const StateDict& StateValue::as_dict() const { return get<StateDict>("a dictionary"); }
const at::Tensor& StateValue::as_tensor() const { return get<at::Tensor>("a tensor"); }
std::vector<double> StateValue::as_numbers() const {
  return values_of<double>(as_list(), &StateValue::as_number);
}
std::vector<int64_t> StateValue::as_integers() const {
  return values_of<int64_t>(as_list(), &StateValue::as_integer);
}

bool operator==(const StateValue& left, const StateValue& right) {
  return checkpoint::same_saved(left.value_, right.value_,
                                [](const auto& a, const auto& b) { return a == b; });
}

}  // namespace accelerate
