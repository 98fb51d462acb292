// Tokens and their ids, both ways.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace accelerate::tokenizers {

// Filled once, then only read, from any thread.
class Vocabulary {
 public:
  // A later id of the same token, or a later token of the same id, replaces the one before.
  void add(std::string_view token, uint32_t id);

  std::optional<uint32_t> find(std::string_view token) const;
  // Valid as long as the vocabulary.
  std::optional<std::string_view> token(uint32_t id) const;
  // Different tokens.
  size_t size() const { return used_; }
  // Bytes of the longest token.
  size_t longest() const { return longest_; }

  // {"token": id, ...}. Throws DataError that names `where` for anything else.
  static Vocabulary from_json(const nlohmann::json& object, const std::string& where);

 private:
  struct Entry {
    uint32_t offset = 0;
    uint32_t size = 0;
    uint32_t id = 0;
  };
  struct Slot {
    uint32_t tag = 0;    // of the hash
    uint32_t entry = 0;  // its number plus 1; 0: free
  };
  std::string_view text(const Entry& entry) const {
    return std::string_view(texts_).substr(entry.offset, entry.size);
  }
  size_t slot_of(std::string_view token, uint64_t hash) const;
  void grow();
  void note_id(uint32_t id, uint32_t entry);

  std::string texts_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;
  size_t used_ = 0;
  size_t longest_ = 0;
  std::vector<uint32_t> by_id_;                         // number of the entry plus 1
  std::unordered_map<uint32_t, uint32_t> by_large_id_;  // the same for ids far beyond their number
};

// The hash that the tables of this room use.
uint64_t hash_of(std::string_view text);

}  // namespace accelerate::tokenizers
