// What a nested value is made of: the kinds of leaves, the kinds of structures, and the way to a
// leaf. Users meet ACCELERATE_FIELDS here, through <accelerate/nested.h>.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "accelerate/batch.h"
#include "accelerate/export.h"

namespace torch::data {
template <typename Data, typename Target>
struct Example;
}  // namespace torch::data

// Inside a struct: names the fields that make it a nested value, in the order in which they are
// visited, packed and sent. All of them, or the others are left behind by every operation.
//
//   struct Tokens {
//     at::Tensor input_ids{};
//     at::Tensor attention_mask{};
//     ACCELERATE_FIELDS(input_ids, attention_mask)
//   };
//
// The struct stays an aggregate: designated initialisers work. At most 32 fields. A struct that
// inherits from this one is not a nested value until it names its own fields.
#define ACCELERATE_FIELDS(...)                                       \
  auto accelerate_fields() { return ::std::tie(__VA_ARGS__); }       \
  auto accelerate_fields() const { return ::std::tie(__VA_ARGS__); } \
  const char* accelerate_field_names() const { return #__VA_ARGS__; }

namespace accelerate {

enum class NestedKind : uint8_t {
  kNone,       // not a nested value
  kTensor,     // a tensor, its first dimension is the batch
  kRows,       // a std::vector with one entry per row: strings or numbers
  kConstant,   // a number, an enumerator or a string that is not cut into rows
  kStructure,  // has children
};

// One step from a structure to a child: a field or key, or an index. Neither: the child takes the
// structure's own place.
struct NestedStep {
  std::string_view name{};
  int64_t index = -1;
};

// The way from a nested value to something in it, for messages. Made while a value is walked and
// not to be kept: it points to the steps above it.
class ACCELERATE_EXPORT NestedPath {
 public:
  NestedPath() = default;  // the value itself
  NestedPath(const NestedPath& parent, NestedStep step) : parent_(&parent), step_(step) {}

  // Such as `target` or `[2].input_ids`; empty for the value itself.
  std::string str() const;

 private:
  const NestedPath* parent_ = nullptr;
  NestedStep step_{};
};

// A path as messages name it: in quotes, or "the value" for the value itself.
ACCELERATE_EXPORT std::string place_name(const std::string& path);

// What can differ between two values of one type: how many children a structure has (a
// std::vector; 0 or 1 in a std::optional), and under which keys (maps; sorted).
struct NestedShape {
  int64_t size = 0;
  std::vector<std::string> keys{};
  bool operator==(const NestedShape&) const = default;
};

// Makes T a nested value. A specialisation has
//   kKind                    what T is
// and if that is kStructure
//   Children                 NestedTypes<...>, the types of the children
//   children(value, visit)   calls visit(NestedStep, child) for each child, in an order that
//                            depends on the shape of `value` alone; `value` may be const
// and if values of T differ in shape
//   shape(value)             the NestedShape
//   reshape(value, shape)    gives `value` that shape, with children as their type makes them
template <class T>
struct NestedTraits {
  static constexpr NestedKind kKind = NestedKind::kNone;
};

template <class... Ts>
struct NestedTypes {};

namespace detail {

template <class T>
concept Number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

template <class T>
concept RowEntry = Number<T> || std::same_as<T, std::string>;

template <class T>
concept HasShape = requires(const T& value) {
  NestedTraits<T>::shape(value);
};

// The class that has the macro, which may be a base of the one that is asked.
template <class T>
std::type_identity<T> declarer_of(const char* (T::*names)() const);
template <class T>
concept HasFieldsMacro = requires {
  { declarer_of(&T::accelerate_field_names) } -> std::same_as<std::type_identity<T>>;
};

// Structs with named fields: tie(value) gives references to them, names() their names separated
// by commas.
template <class T>
struct FieldsOf;

template <HasFieldsMacro T>
struct FieldsOf<T> {
  static auto tie(T& value) { return value.accelerate_fields(); }
  static auto tie(const T& value) { return value.accelerate_fields(); }
  static std::string_view names(const T& value) { return value.accelerate_field_names(); }
};

template <class T>
struct LabelledFields {
  static auto tie(auto& value) { return std::tie(value.data, value.target); }
  static std::string_view names(const T&) { return "data, target"; }
};

template <class T>
struct UnlabelledFields {
  static auto tie(auto& value) { return std::tie(value.data); }
  static std::string_view names(const T&) { return "data"; }
};

template <>
struct FieldsOf<Sample> : LabelledFields<Sample> {};
template <>
struct FieldsOf<UnlabelledBatch> : UnlabelledFields<UnlabelledBatch> {};
template <class Data, class Target>
struct FieldsOf<torch::data::Example<Data, Target>>
    : LabelledFields<torch::data::Example<Data, Target>> {};
template <class Data>
struct FieldsOf<torch::data::Example<Data, void>>
    : UnlabelledFields<torch::data::Example<Data, void>> {};

template <class T>
concept HasFields = requires(T& value) {
  FieldsOf<T>::tie(value);
};

template <class... Ts>
NestedTypes<std::remove_cvref_t<Ts>...> types_of(const std::tuple<Ts...>& fields);

// Takes the first name off a list that is separated by commas.
inline std::string_view next_name(std::string_view& names) {
  const size_t end = std::min(names.find(','), names.size());
  const std::string_view name = names.substr(0, end);
  names.remove_prefix(std::min(end + 1, names.size()));
  while (!names.empty() && names.front() == ' ') names.remove_prefix(1);
  return name;
}

template <NestedKind kind>
struct LeafTraits {
  static constexpr NestedKind kKind = kind;
};

struct StructureTraits {
  static constexpr NestedKind kKind = NestedKind::kStructure;
};

// A std::pair or std::tuple.
template <class... Ts>
struct TupleTraits : StructureTraits {
  using Children = NestedTypes<Ts...>;
  static void children(auto& value, auto&& visit) {
    std::apply(
        [&](auto&... child) {
          [[maybe_unused]] int64_t index = 0;
          (visit(NestedStep{.index = index++}, child), ...);
        },
        value);
  }
};

// A std::array or std::vector.
template <class T>
struct SequenceTraits : StructureTraits {
  using Children = NestedTypes<T>;
  static void children(auto& value, auto&& visit) {
    int64_t index = 0;
    for (auto& child : value) visit(NestedStep{.index = index++}, child);
  }
};

template <class Map>
struct MapTraits : StructureTraits {
  using Children = NestedTypes<typename Map::mapped_type>;
  static NestedShape shape(const Map& value) {
    NestedShape shape{.size = static_cast<int64_t>(value.size())};
    shape.keys.reserve(value.size());
    for (const auto& entry : value) shape.keys.push_back(entry.first);
    std::sort(shape.keys.begin(), shape.keys.end());
    return shape;
  }
  static void reshape(Map& value, const NestedShape& shape) {
    value.clear();
    for (const std::string& key : shape.keys) value[key];
  }
};

}  // namespace detail

template <>
struct NestedTraits<at::Tensor> : detail::LeafTraits<NestedKind::kTensor> {};
template <>
struct NestedTraits<std::string> : detail::LeafTraits<NestedKind::kConstant> {};
template <detail::Number T>
struct NestedTraits<T> : detail::LeafTraits<NestedKind::kConstant> {};
template <detail::RowEntry T>
struct NestedTraits<std::vector<T>> : detail::LeafTraits<NestedKind::kRows> {};

template <class... Ts>
struct NestedTraits<std::tuple<Ts...>> : detail::TupleTraits<Ts...> {};
template <class First, class Second>
struct NestedTraits<std::pair<First, Second>> : detail::TupleTraits<First, Second> {};
template <class T, size_t size>
struct NestedTraits<std::array<T, size>> : detail::SequenceTraits<T> {};

template <class T>
requires(!detail::RowEntry<T>)  //
    struct NestedTraits<std::vector<T>> : detail::SequenceTraits<T> {
  static NestedShape shape(const std::vector<T>& value) {
    return {.size = static_cast<int64_t>(value.size())};
  }
  static void reshape(std::vector<T>& value, const NestedShape& shape) {
    value.clear();
    value.resize(static_cast<size_t>(shape.size));
  }
};

template <class T>
struct NestedTraits<std::optional<T>> : detail::StructureTraits {
  using Children = NestedTypes<T>;
  static void children(auto& value, auto&& visit) {
    if (value) visit(NestedStep{}, *value);
  }
  static NestedShape shape(const std::optional<T>& value) { return {.size = value ? 1 : 0}; }
  static void reshape(std::optional<T>& value, const NestedShape& shape) {
    value.reset();
    if (shape.size != 0) value.emplace();
  }
};

template <class T>
struct NestedTraits<std::map<std::string, T>> : detail::MapTraits<std::map<std::string, T>> {
  static void children(auto& value, auto&& visit) {
    for (auto& [key, child] : value) visit(NestedStep{.name = key}, child);
  }
};

// In the order of the keys: each rank must visit the tensors in the same one.
template <class T>
struct NestedTraits<std::unordered_map<std::string, T>>
    : detail::MapTraits<std::unordered_map<std::string, T>> {
  static void children(auto& value, auto&& visit) {
    using Entry = std::remove_reference_t<decltype(*value.begin())>;
    std::vector<Entry*> entries;
    entries.reserve(value.size());
    for (auto& entry : value) entries.push_back(&entry);
    std::sort(entries.begin(), entries.end(),
              [](const Entry* a, const Entry* b) { return a->first < b->first; });
    for (Entry* entry : entries) visit(NestedStep{.name = entry->first}, entry->second);
  }
};

template <detail::HasFields T>
struct NestedTraits<T> : detail::StructureTraits {
  using Children = decltype(detail::types_of(detail::FieldsOf<T>::tie(std::declval<T&>())));
  static void children(auto& value, auto&& visit) {
    std::string_view names = detail::FieldsOf<T>::names(value);
    std::apply(
        [&](auto&... field) { (visit(NestedStep{.name = detail::next_name(names)}, field), ...); },
        detail::FieldsOf<T>::tie(value));
  }
};

// A batch is visited as what it holds; where it stands in the pass stays as it is.
template <class Value>
struct NestedTraits<Batch<Value>> : detail::StructureTraits {
  using Children = NestedTypes<Value>;
  static void children(auto& batch, auto&& visit) {
    using Held = std::conditional_t<std::is_const_v<std::remove_reference_t<decltype(batch)>>,
                                    const Value, Value>;
    visit(NestedStep{}, static_cast<Held&>(batch));
  }
};

namespace detail {

template <class T>
constexpr bool nested();
template <class... Ts>
constexpr bool all_nested(NestedTypes<Ts...>) {
  return (nested<Ts>() && ...);
}
template <class T>
constexpr bool nested() {
  if constexpr (NestedTraits<T>::kKind == NestedKind::kStructure) {
    return all_nested(typename NestedTraits<T>::Children{});
  } else {
    return NestedTraits<T>::kKind != NestedKind::kNone;
  }
}

}  // namespace detail
}  // namespace accelerate
