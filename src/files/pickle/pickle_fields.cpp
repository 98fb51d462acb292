#include "files/pickle/pickle_fields.h"

#include <utility>

#include "accelerate/errors.h"
#include "files/pickle/pickle_text.h"

namespace accelerate::files {
namespace {

constexpr size_t kMostSizes = 64;  // dimensions of a tensor of torch

constexpr size_t kCopiesOfByte = 64;
constexpr size_t kCopiesOfAll = size_t{1} << 16U;  // bytes

// What a pickle of this length may be copied to.
size_t copies_of(const PickleDocument& document) {
  size_t bytes = 0;
  for (const PickleValue& value : document.values) {
    const auto* text = std::get_if<PickleText>(&value);
    bytes += text == nullptr ? 1 : text->text.size() + 1;
  }
  return kCopiesOfByte * bytes + kCopiesOfAll;
}

template <class T>
const T* get_box(const PickleValue& value) {
  const auto* box = std::get_if<PickleBox<T>>(&value);
  return box == nullptr ? nullptr : box->get();
}

}  // namespace

PickleFields::PickleFields(const PickleDocument& document, const std::string& where,
                           std::string kind)
    : document_(document),
      where_(where),
      kind_(std::move(kind)),
      copies_left_(copies_of(document)) {}

void PickleFields::count_copy(size_t bytes) {
  if (bytes > copies_left_) refuse("it repeats the same values too often");
  copies_left_ -= bytes;
}

std::string PickleFields::copied_text(PickleIndex index, const std::string& subject) {
  const std::string& held = text(index, subject);
  count_copy(held.size() + sizeof(held));
  return held;
}

void PickleFields::refuse(const std::string& what) const {
  throw CheckpointError({.what = "this is not " + kind_ + " as it is known: " + what,
                         .where = where_,
                         .hint = "the file is damaged, or of a version that is not known here"});
}

bool PickleFields::is_none(PickleIndex index) const {
  return std::holds_alternative<std::monostate>(at(index));
}

const PickleRecord* PickleFields::find_record(PickleIndex index, std::string_view name) const {
  const auto* record = get_box<PickleRecord>(at(index));
  return record == nullptr || record->type->name != name ? nullptr : record;
}

const PickleDict* PickleFields::find_dict(PickleIndex index) const {
  return std::get_if<PickleDict>(&at(index));
}

const PickleTensor* PickleFields::find_tensor(PickleIndex index) const {
  return get_box<PickleTensor>(at(index));
}

const std::string* PickleFields::find_text(PickleIndex index) const {
  const auto* text = std::get_if<PickleText>(&at(index));
  return text == nullptr ? nullptr : &text->text;
}

const PickleDict& PickleFields::dict(PickleIndex index, const std::string& subject) const {
  if (const PickleDict* dict = find_dict(index)) return *dict;
  refuse(subject + " is not a dict");
}

const std::vector<PickleIndex>& PickleFields::list(PickleIndex index,
                                                   const std::string& subject) const {
  const auto* sequence = std::get_if<PickleSequence>(&at(index));
  if (sequence == nullptr || sequence->kind == PickleSequence::Kind::kSet) {
    refuse(subject + " is not a list");
  }
  return sequence->items;
}

const PickleTensor& PickleFields::tensor(PickleIndex index, const std::string& subject) const {
  if (const PickleTensor* tensor = find_tensor(index)) return *tensor;
  refuse(subject + " is not a tensor");
}

const std::string& PickleFields::text(PickleIndex index, const std::string& subject) const {
  if (const std::string* text = find_text(index)) return *text;
  refuse(subject + " is not a string");
}

int64_t PickleFields::integer(PickleIndex index, const std::string& subject) const {
  if (const auto* number = std::get_if<int64_t>(&at(index))) return *number;
  refuse(subject + " is not an integer");
}

uint64_t PickleFields::natural(PickleIndex index, const std::string& subject) const {
  const int64_t number = integer(index, subject);
  if (number < 0) refuse(subject + " is negative");
  return static_cast<uint64_t>(number);
}

std::vector<uint64_t> PickleFields::shape(PickleIndex index, const std::string& subject) {
  std::vector<uint64_t> sizes;
  count_copy(sizeof(sizes));
  if (const auto* size = std::get_if<PickleSize>(&at(index))) {
    count_copy(size->sizes.size() * sizeof(uint64_t));
    for (const int64_t number : size->sizes) {
      if (number < 0) refuse(subject + " is negative");
      sizes.push_back(static_cast<uint64_t>(number));
    }
    return sizes;
  }
  const std::vector<PickleIndex>& items = list(index, subject);
  if (items.size() > kMostSizes) refuse(subject + " has too many dimensions");
  count_copy(items.size() * sizeof(uint64_t));
  for (const PickleIndex item : items) sizes.push_back(natural(item, subject));
  return sizes;
}

std::optional<PickleIndex> PickleFields::find(const PickleDict& dict, std::string_view key) const {
  for (const auto& [name, value] : dict.entries) {
    const std::string* text = find_text(name);
    if (text != nullptr && *text == key) return value;
  }
  return std::nullopt;
}

PickleIndex PickleFields::need(const PickleDict& dict, std::string_view key) const {
  if (const auto value = find(dict, key)) return *value;
  refuse("'" + std::string(key) + "' is missing");
}

}  // namespace accelerate::files
