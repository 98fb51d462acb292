#include "transformers/tokenizers/models/vocabulary.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <limits>

#include "accelerate/errors.h"
#include "transformers/tokenizers/json/json_fields.h"

namespace accelerate::tokenizers {
namespace {

// Ids up to here are looked up in a list, however few they are.
constexpr uint32_t kAlwaysListed = 1 << 16;

uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

}  // namespace

uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

// The slot of the token, or the free one where it belongs. There is always a free one.
size_t Vocabulary::slot_of(std::string_view token, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.entry == 0) return i;
    if (slot.tag == tag_of(hash) && text(entries_[slot.entry - 1]) == token) return i;
  }
}

void Vocabulary::grow() {
  slots_.assign(std::max<size_t>(16, slots_.size() * 2), Slot{});
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    const uint64_t hash = hash_of(text(entries_[i]));
    slots_[slot_of(text(entries_[i]), hash)] = {tag_of(hash), i + 1};
  }
}

void Vocabulary::note_id(uint32_t id, uint32_t entry) {
  if (id >= by_id_.size()) {
    if (id >= kAlwaysListed && id / 16 > entries_.size()) {
      by_large_id_[id] = entry;
      return;
    }
    by_id_.resize(std::max<size_t>(id + size_t{1}, by_id_.size() * 2));
  }
  by_large_id_.erase(id);
  by_id_[id] = entry;
}

void Vocabulary::add(std::string_view token, uint32_t id) {
  if (texts_.size() + token.size() > std::numeric_limits<uint32_t>::max()) {
    throw DataError({.what = "a vocabulary has more than 4 GiB of tokens"});
  }
  if ((used_ + 1) * 2 > slots_.size()) grow();
  const uint64_t hash = hash_of(token);
  const size_t slot = slot_of(token, hash);
  if (slots_[slot].entry == 0) ++used_;
  entries_.push_back(
      {static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(token.size()), id});
  texts_ += token;
  longest_ = std::max(longest_, token.size());
  const auto entry = static_cast<uint32_t>(entries_.size());
  slots_[slot] = {tag_of(hash), entry};
  note_id(id, entry);
}

std::optional<uint32_t> Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[slot_of(token, hash_of(token))];
  if (slot.entry == 0) return std::nullopt;
  return entries_[slot.entry - 1].id;
}

std::optional<std::string_view> Vocabulary::token(uint32_t id) const {
  uint32_t entry = id < by_id_.size() ? by_id_[id] : 0;
  if (entry == 0) {
    const auto found = by_large_id_.find(id);
    if (found == by_large_id_.end()) return std::nullopt;
    entry = found->second;
  }
  return text(entries_[entry - 1]);
}

Vocabulary Vocabulary::from_json(const nlohmann::json& object, const std::string& where) {
  if (!object.is_object()) {
    throw DataError({.what = "expected an object of tokens and ids", .where = where});
  }
  Vocabulary vocabulary;
  for (const auto& [token, id] : object.items()) vocabulary.add(token, id_of(id, where));
  return vocabulary;
}

}  // namespace accelerate::tokenizers
