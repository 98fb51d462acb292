#include "files/pickle/pickle_keys.h"

#include <bit>
#include <unordered_map>
#include <unordered_set>

namespace accelerate::files {
namespace {

constexpr int kDeepestKey = 64;

// Gives equal keys equal numbers. Each value is looked at once, however often it is a key.
class KeyNumbers {
 public:
  KeyNumbers(const PickleDocument& document, const PickleCalls& calls)
      : document_(document), calls_(calls) {}

  uint32_t of(PickleIndex key, int depth = 0) {
    if (const auto known = by_index_.find(key); known != by_index_.end()) return known->second;
    const auto [entry, is_new] =
        by_text_.emplace(text_of(key, depth), static_cast<uint32_t>(by_text_.size()));
    by_index_.emplace(key, entry->second);
    return entry->second;
  }

 private:
  std::string text_of(PickleIndex key, int depth) {
    const PickleValue& value = document_.at(key);
    if (std::holds_alternative<std::monostate>(value)) return "none";
    if (const auto* truth = std::get_if<bool>(&value)) return "i" + std::to_string(int{*truth});
    if (const auto* integer = std::get_if<int64_t>(&value)) return "i" + std::to_string(*integer);
    if (const auto* number = std::get_if<double>(&value)) {
      return "f" + std::to_string(std::bit_cast<uint64_t>(*number));
    }
    if (const auto* text = std::get_if<PickleText>(&value)) return "t" + text->text;
    if (const auto* bytes = std::get_if<PickleBytes>(&value)) return "b" + bytes->bytes;
    if (const auto* big = std::get_if<PickleBigInteger>(&value)) return "i" + big->digits;
    if (const auto* dtype = std::get_if<PickleDtype>(&value)) return "d" + std::string(dtype->name);
    if (const auto* device = std::get_if<PickleDevice>(&value)) return "e" + device->name;
    if (std::holds_alternative<PickleBox<PickleRecord>>(value)) return "r" + std::to_string(key);
    const auto* sequence = std::get_if<PickleSequence>(&value);
    if (sequence == nullptr || sequence->kind != PickleSequence::Kind::kTuple ||
        depth == kDeepestKey) {
      calls_.refuse("a key of a dict is neither a string nor a number nor a tuple of them");
    }
    std::string text = "(";
    for (const PickleIndex item : sequence->items)
      text += std::to_string(of(item, depth + 1)) + ",";
    return text;
  }

  const PickleDocument& document_;
  const PickleCalls& calls_;
  std::unordered_map<PickleIndex, uint32_t> by_index_;
  std::unordered_map<std::string, uint32_t> by_text_;
};

}  // namespace

void check_pickle_keys(const PickleDocument& document, const PickleCalls& calls) {
  KeyNumbers numbers(document, calls);
  for (const PickleValue& value : document.values) {
    const auto* dict = std::get_if<PickleDict>(&value);
    if (dict == nullptr) continue;
    std::unordered_set<uint32_t> seen;
    for (const auto& [key, held] : dict->entries) {
      if (!seen.insert(numbers.of(key)).second) calls.refuse("a dict holds the same key twice");
    }
  }
}

}  // namespace accelerate::files
