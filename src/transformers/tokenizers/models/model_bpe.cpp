#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/models/merge_table.h"
#include "transformers/tokenizers/models/models.h"
#include "transformers/tokenizers/models/vocabulary.h"
#include "transformers/tokenizers/text/byte_level.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

using Symbol = Workspace::Symbol;

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
// Above this many symbols a queue of merges is faster than looking for the best one each time.
constexpr size_t kFewSymbols = 40;

struct MergeText {
  std::string left{};
  std::string right{};
};

// ["a", "b"], or "a b" in older files, where a line of merges.txt may tell a version.
std::vector<MergeText> read_merges(const JsonFields& fields) {
  std::vector<MergeText> merges;
  for (const nlohmann::json& merge : fields.list("merges")) {
    const std::string where = fields.place("merges") + '[' + std::to_string(merges.size()) + ']';
    if (merge.is_array()) {
      if (merge.size() != 2) throw DataError({.what = "expected two tokens", .where = where});
      merges.push_back({text_of(merge[0], where), text_of(merge[1], where)});
      continue;
    }
    const std::string line = text_of(merge, where);
    if (line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      throw DataError(
          {.what = "expected two tokens and a space between them, got " + in_quotes(line),
           .where = where});
    }
    merges.push_back({line.substr(0, space), line.substr(space + 1)});
  }
  return merges;
}

class Bpe final : public Model {
 public:
  explicit Bpe(const JsonFields& fields)
      : vocabulary_(Vocabulary::from_json(fields.at("vocab"), fields.place("vocab"))),
        merges_(fields.list("merges").size()),
        prefix_(fields.text_or("continuing_subword_prefix", "")),
        suffix_(fields.text_or("end_of_word_suffix", "")),
        fuse_unknown_(fields.flag_or("fuse_unk", false)),
        byte_fallback_(fields.flag_or("byte_fallback", false)),
        ignore_merges_(fields.flag_or("ignore_merges", false)) {
    if (const nlohmann::json* dropout = fields.find("dropout"); dropout != nullptr) {
      if (!dropout->is_number() || *dropout != 0) {
        fields.refuse("dropout", "null: merges that are left out at random are not supported");
      }
    }
    if (fields.find("unk_token") != nullptr) unknown_ = fields.text("unk_token");
    if (unknown_) unknown_id_ = vocabulary_.find(*unknown_);
    for (unsigned byte = 0; byte < 256; ++byte) {
      constexpr std::string_view kHex = "0123456789ABCDEF";
      byte_tokens_[byte] =
          vocabulary_.find(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + '>');
    }
    add_merges(fields);
  }

  std::optional<uint32_t> find(std::string_view token) const override {
    return vocabulary_.find(token);
  }
  std::optional<std::string_view> token(uint32_t id) const override {
    return vocabulary_.token(id);
  }
  size_t size() const override { return vocabulary_.size(); }

  bool take_bytes() override {
    if (!prefix_.empty() || !suffix_.empty()) return false;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto id = vocabulary_.find(byte_alphabet().utf8[byte]);
      if (!id) return false;
      symbol_of_byte_[byte] = *id;
    }
    takes_bytes_ = true;
    return true;
  }

  void tokenize(std::string_view text, Workspace& workspace,
                std::vector<Piece>& pieces) const override {
    const uint64_t hash = hash_of(text);
    if (workspace.cache.find(text, hash, pieces)) return;
    const size_t first = pieces.size();
    append_pieces(text, workspace, pieces);
    workspace.cache.store(text, hash, pieces, first);
  }

 private:
  void add_merges(const JsonFields& fields) {
    uint32_t rank = 0;
    const std::string where = fields.place("merges");
    const auto known = [&](const std::string& token) {
      const auto id = vocabulary_.find(token);
      if (id) return *id;
      throw DataError({.what = "a merge needs the token " + in_quotes(token) +
                               ", which is not in the vocabulary",
                       .where = where});
    };
    for (const MergeText& merge : read_merges(fields)) {
      if (merge.right.size() < prefix_.size()) {
        throw DataError({.what = "a merge continues with " + in_quotes(merge.right) +
                                 ", which is shorter than the prefix",
                         .where = where});
      }
      const std::string joined = merge.left + merge.right.substr(prefix_.size());
      merges_.add(known(merge.left), known(merge.right), {rank++, known(joined)});
    }
  }

  void append_pieces(std::string_view text, Workspace& workspace,
                     std::vector<Piece>& pieces) const {
    if (ignore_merges_) {
      const auto id = vocabulary_.find(takes_bytes_ ? chars_of_bytes(text) : std::string(text));
      if (id) {
        pieces.push_back({*id, 0, static_cast<uint32_t>(text.size())});
        return;
      }
    }
    std::vector<Symbol>& symbols = workspace.symbols;
    symbols.clear();
    if (takes_bytes_) {
      for (const char c : text) {
        symbols.push_back({.id = symbol_of_byte_[static_cast<unsigned char>(c)], .size = 1});
      }
    } else {
      read_symbols(text, workspace);
    }
    if (symbols.size() <= kFewSymbols) {
      merge_few(symbols, workspace.ranks);
    } else {
      merge_many(symbols, workspace.queue);
    }
    uint32_t begin = 0;
    for (const Symbol& symbol : symbols) {
      if (symbol.size == 0) continue;
      pieces.push_back({symbol.id, begin, begin + symbol.size});
      begin += symbol.size;
    }
  }

  // One symbol a character; bytes, the unknown token or nothing for those without one.
  void read_symbols(std::string_view text, Workspace& workspace) const {
    std::vector<Symbol>& symbols = workspace.symbols;
    std::optional<Symbol> unknown;
    const auto flush = [&] {
      if (unknown) symbols.push_back(*unknown);
      unknown.reset();
    };
    for (size_t i = 0; i < text.size();) {
      const uint32_t bytes = utf8_length(text[i]);
      std::string_view character = text.substr(i, bytes);
      const bool last = i + bytes == text.size();
      if ((i > 0 && !prefix_.empty()) || (last && !suffix_.empty())) {
        workspace.text = i > 0 ? prefix_ : std::string();
        workspace.text += character;
        if (last) workspace.text += suffix_;
        character = workspace.text;
      }
      i += bytes;
      if (const auto id = vocabulary_.find(character)) {
        flush();
        symbols.push_back({.id = *id, .size = bytes});
        continue;
      }
      if (byte_fallback_ && append_bytes(character, symbols)) continue;
      if (!unknown_) continue;
      if (!unknown_id_) {
        throw DataError({.what = "a character is not in the vocabulary, nor is the unknown token " +
                                 in_quotes(*unknown_)});
      }
      if (unknown && fuse_unknown_) {
        unknown->size += bytes;
      } else {
        flush();
        unknown = Symbol{.id = *unknown_id_, .size = bytes};
      }
    }
    flush();
  }

  bool append_bytes(std::string_view character, std::vector<Symbol>& symbols) const {
    const auto known = [this](char c) {
      return byte_tokens_[static_cast<unsigned char>(c)].has_value();
    };
    if (!std::ranges::all_of(character, known)) return false;
    for (const char c : character) {
      symbols.push_back({.id = *byte_tokens_[static_cast<unsigned char>(c)], .size = 1});
    }
    return true;
  }

  // Merges what merges earliest, again and again; of equals, what stands first.
  void merge_few(std::vector<Symbol>& symbols, std::vector<uint32_t>& ranks) const {
    const auto rank_at = [&](size_t i) {
      const Merge* merge = merges_.find(symbols[i].id, symbols[i + 1].id);
      return merge == nullptr ? kNoRank : merge->rank;
    };
    if (symbols.size() < 2) return;
    ranks.resize(symbols.size() - 1);
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = rank_at(i);
    while (!ranks.empty()) {
      const auto best = std::ranges::min_element(ranks);
      if (*best == kNoRank) return;
      const auto i = static_cast<size_t>(best - ranks.begin());
      symbols[i].id = merges_.find(symbols[i].id, symbols[i + 1].id)->id;
      symbols[i].size += symbols[i + 1].size;
      symbols.erase(symbols.begin() + (best - ranks.begin()) + 1);
      ranks.erase(best);
      if (i > 0) ranks[i - 1] = rank_at(i - 1);
      if (i < ranks.size()) ranks[i] = rank_at(i);
    }
  }

  // The same with a queue of (rank, place), of which some have become untrue when they are due.
  void merge_many(std::vector<Symbol>& symbols, std::vector<uint64_t>& queue) const {
    const auto count = static_cast<int32_t>(symbols.size());
    for (int32_t i = 0; i < count; ++i) {
      symbols[i].previous = i - 1;
      symbols[i].next = i + 1 < count ? i + 1 : -1;
    }
    queue.clear();
    const auto offer = [&](int32_t i) {
      if (i < 0 || symbols[i].next < 0) return;
      const Merge* merge = merges_.find(symbols[i].id, symbols[symbols[i].next].id);
      if (merge != nullptr) queue.push_back(uint64_t{merge->rank} << 32 | static_cast<uint32_t>(i));
    };
    for (int32_t i = 0; i < count; ++i) offer(i);
    std::ranges::make_heap(queue, std::greater<>());
    while (!queue.empty()) {
      std::ranges::pop_heap(queue, std::greater<>());
      const uint64_t due = queue.back();
      queue.pop_back();
      const auto i = static_cast<int32_t>(due & 0xffffffff);
      Symbol& left = symbols[i];
      if (left.size == 0 || left.next < 0) continue;
      Symbol& right = symbols[left.next];
      const Merge* merge = merges_.find(left.id, right.id);
      if (merge == nullptr || merge->rank != due >> 32) continue;
      left.id = merge->id;
      left.size += right.size;
      right.size = 0;
      left.next = right.next;
      if (left.next >= 0) symbols[left.next].previous = i;
      for (const int32_t changed : {left.previous, i}) {
        const size_t before = queue.size();
        offer(changed);
        if (queue.size() > before) std::ranges::push_heap(queue, std::greater<>());
      }
    }
  }

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::string prefix_;
  std::string suffix_;
  std::optional<std::string> unknown_;
  std::optional<uint32_t> unknown_id_;
  bool fuse_unknown_;
  bool byte_fallback_;
  bool ignore_merges_;
  std::array<std::optional<uint32_t>, 256> byte_tokens_{};
  bool takes_bytes_ = false;
  std::array<uint32_t, 256> symbol_of_byte_{};
};

}  // namespace

std::unique_ptr<Model> make_bpe(const nlohmann::json& json, const std::string& where) {
  return std::make_unique<Bpe>(JsonFields(json, where));
}

}  // namespace accelerate::tokenizers
