// TorchValue and TorchDict.
#include <algorithm>
#include <array>
#include <type_traits>

#include "accelerate/torch_archive.h"
#include "checkpoint/archive/saved_value.h"

namespace accelerate {

TorchDict::TorchDict(Kind kind) : kind_(kind) {}

TorchDict::TorchDict(std::initializer_list<Entry> entries, Kind kind) : kind_(kind) {
  for (const Entry& entry : entries) set(entry.first, entry.second);
}

void TorchDict::set(TorchValue key, TorchValue value) {
  const auto found = std::ranges::find(entries_, key, &Entry::first);
  if (found == entries_.end()) return add(std::move(key), std::move(value));
  found->second = std::move(value);
}

void TorchDict::add(TorchValue key, TorchValue value) {
  entries_.emplace_back(std::move(key), std::move(value));
}

const TorchValue* TorchDict::find_key(const TorchValue& key) const {
  const auto found = std::ranges::find(entries_, key, &Entry::first);
  return found == entries_.end() ? nullptr : &found->second;
}

const TorchValue* TorchDict::find(int64_t key) const { return find_key(TorchValue(key)); }

const TorchValue* TorchDict::find(std::string_view key) const {
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
    const auto* text = std::get_if<std::string>(&entry.first.variant());
    return text != nullptr && *text == key;
  });
  return found == entries_.end() ? nullptr : &found->second;
}

const TorchValue& TorchDict::at(std::string_view key) const {
  if (const TorchValue* value = find(key)) return *value;
  checkpoint::refuse_missing_key(key);
}

size_t TorchDict::size() const { return entries_.size(); }

bool operator==(const TorchDict& left, const TorchDict& right) {
  return left.kind_ == right.kind_ && left.entries_ == right.entries_;
}

const char* TorchValue::kind() const {
  static constexpr std::array<const char*, std::variant_size_v<Variant>> kNames{
      "None",     "a boolean", "an integer",      "a number",
      "a string", "bytes",     "a large integer", "a list",
      "a tuple",  "a set",     "a dict",          "a torch.Size",
      "a dtype",  "a device",  "a tensor",        "a NumPy array"};
  return kNames[value_.index()];
}

template <class T>
const T& TorchValue::get(const char* expected) const {
  return checkpoint::get_saved<T>(value_, kind(), expected);
}

bool TorchValue::as_bool() const { return get<bool>("a boolean"); }
int64_t TorchValue::as_integer() const { return get<int64_t>("an integer"); }
double TorchValue::as_number() const { return checkpoint::get_saved_number(value_, kind()); }
const std::string& TorchValue::as_string() const { return get<std::string>("a string"); }
const std::vector<TorchValue>& TorchValue::as_sequence() const {
  if (const auto* tuple = std::get_if<TorchTuple>(&value_)) return tuple->items;
  return get<List>("a list or a tuple");
}
const TorchDict& TorchValue::as_dict() const { return get<TorchDict>("a dict"); }
const at::Tensor& TorchValue::as_tensor() const { return get<at::Tensor>("a tensor"); }

bool operator==(const TorchValue& left, const TorchValue& right) {
  return checkpoint::same_saved(left.value_, right.value_, []<class T>(const T& a, const T& b) {
    if constexpr (std::is_same_v<T, TorchNumpyArray>) {
      return same_bits(a.values, b.values);
    } else if constexpr (std::is_same_v<T, TorchTuple> || std::is_same_v<T, TorchSet>) {
      return a.items == b.items;
    } else {
      return a == b;
    }
  });
}

}  // namespace accelerate
