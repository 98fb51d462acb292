// Words that are one token wherever they stand: the "added_tokens" of a tokenizer.json.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "accelerate/tokenizers.h"
#include "transformers/tokenizers/models/models.h"
#include "transformers/tokenizers/models/prefix_tree.h"
#include "transformers/tokenizers/normalizers/normalizers.h"
#include "transformers/tokenizers/pre_tokenizers/pre_tokenized.h"

namespace accelerate::tokenizers {

// Only read once it is filled; safe from any thread then.
class AddedTokens {
 public:
  // Returns how many were new or changed. A token of the model keeps its id, others get the next
  // free one. `normalizer` may be nullptr.
  int64_t add(std::span<const AddedToken> tokens, const Model& model, const Normalizer* normalizer);

  std::optional<uint32_t> find(std::string_view token) const;
  // As decoding needs it: the normalized form, where there is one.
  std::optional<std::string_view> token(uint32_t id) const;
  bool is_special(std::string_view token) const { return special_.contains(std::string(token)); }
  // Those that the model does not have.
  size_t count_beside(const Model& model) const;

  // The text in segments: added tokens, and what lies between them, normalized. None is empty.
  std::vector<Segment> extract(std::string_view text, const Normalizer* normalizer) const;

 private:
  // Finds the leftmost tokens, of several at one place the longest.
  class Finder {
   public:
    Finder() = default;
    explicit Finder(std::vector<PrefixTree::Key> keys);
    // The first token at or behind `from`; its id in `id`, none: size of the text.
    Span next(std::string_view text, uint32_t from, uint32_t& id) const;

   private:
    std::unique_ptr<const PrefixTree> tree_{};
    std::array<bool, 256> begins_{};  // whether a token begins with the byte
  };
  struct Match {
    std::optional<uint32_t> id{};
    Span span{};
  };

  void make_finders();
  std::vector<Match> find_in(std::string_view text, const Finder& finder) const;

  std::unordered_map<std::string, uint32_t> ids_;
  std::map<uint32_t, AddedToken> tokens_;
  std::unordered_map<uint32_t, std::string> normalized_;
  std::unordered_set<std::string> special_;
  Finder plain_;
  Finder in_normalized_;
};

}  // namespace accelerate::tokenizers
