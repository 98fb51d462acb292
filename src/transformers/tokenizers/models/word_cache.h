// What the model made of the words that were seen last.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace accelerate::tokenizers {

// One token of a piece of text: bytes [begin, end) of the piece. The token reads like the
// vocabulary has it, or like the text if `surface` is set.
struct Piece {
  uint32_t id = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  bool surface = false;
};

// Words of up to 23 bytes and 7 tokens that lie side by side. A table of fixed size in which a word
// takes the place of another with the same slot. For one thread at a time.
class WordCache {
 public:
  // Appends the tokens of `word` if it is known.
  bool find(std::string_view word, uint64_t hash, std::vector<Piece>& pieces) const {
    if (word.size() > kKeyBytes || slots_.empty()) return false;
    const Slot& slot = slots_[hash % kSlots];
    if (slot.hash != hash || slot.key_size != word.size() ||
        std::memcmp(slot.key.data(), word.data(), word.size()) != 0) {
      return false;
    }
    uint32_t begin = 0;
    for (size_t i = 0; i < slot.count; ++i) {
      const uint32_t end = begin + (slot.sizes[i] & kSizeBits);
      pieces.push_back({slot.ids[i], begin, end, (slot.sizes[i] & kSurfaceBit) != 0});
      begin = end;
    }
    return true;
  }

  // Keeps pieces[first...] as the tokens of `word`, if they fit.
  void store(std::string_view word, uint64_t hash, const std::vector<Piece>& pieces, size_t first) {
    const size_t count = pieces.size() - first;
    if (word.size() > kKeyBytes || count > kPieces) return;
    Slot slot{.hash = hash};
    uint32_t begin = 0;
    for (size_t i = 0; i < count; ++i) {
      const Piece& piece = pieces[first + i];
      if (piece.begin != begin) return;
      slot.ids[i] = piece.id;
      slot.sizes[i] = static_cast<uint8_t>((piece.end - begin) | (piece.surface ? kSurfaceBit : 0));
      begin = piece.end;
    }
    if (slots_.empty()) slots_.resize(kSlots);
    slot.count = static_cast<uint8_t>(count);
    slot.key_size = static_cast<uint8_t>(word.size());
    std::memcpy(slot.key.data(), word.data(), word.size());
    slots_[hash % kSlots] = slot;
  }

 private:
  static constexpr size_t kSlots = 1 << 13;
  static constexpr size_t kKeyBytes = 23;
  static constexpr size_t kPieces = 7;
  static constexpr uint8_t kSurfaceBit = 0x80;
  static constexpr uint8_t kSizeBits = 0x7f;

  struct Slot {
    uint64_t hash = 0;
    uint8_t key_size = 0xff;  // no word is that long: free
    std::array<char, kKeyBytes> key{};
    uint8_t count = 0;
    std::array<uint8_t, kPieces> sizes{};
    std::array<uint32_t, kPieces> ids{};
  };
  std::vector<Slot> slots_;
};

}  // namespace accelerate::tokenizers
