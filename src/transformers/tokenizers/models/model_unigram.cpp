// Unigram: of all ways to cut a text into tokens, the one whose scores add up to the most.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "accelerate/errors.h"
#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/models/models.h"
#include "transformers/tokenizers/models/prefix_tree.h"
#include "transformers/tokenizers/models/vocabulary.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

// How much worse an unknown character is than the worst token.
constexpr double kUnknownPenalty = 10;

struct ScoredTokens {
  std::vector<std::string> tokens{};
  std::vector<double> scores{};
};

ScoredTokens read_vocabulary(const JsonFields& fields) {
  ScoredTokens result;
  for (const nlohmann::json& row : fields.list("vocab")) {
    const std::string where =
        fields.place("vocab") + '[' + std::to_string(result.tokens.size()) + ']';
    if (!row.is_array() || row.size() != 2 || !row[1].is_number()) {
      throw DataError({.what = "expected a token and its score", .where = where});
    }
    result.tokens.push_back(text_of(row[0], where));
    result.scores.push_back(row[1].get<double>());
  }
  return result;
}

PrefixTree make_tree(const std::vector<std::string>& tokens) {
  std::vector<PrefixTree::Key> keys;
  keys.reserve(tokens.size());
  for (uint32_t id = 0; id < tokens.size(); ++id) keys.push_back({tokens[id], id});
  return PrefixTree(std::move(keys));
}

class Unigram final : public Model {
 public:
  Unigram(const JsonFields& fields, ScoredTokens scored)
      : scores_(std::move(scored.scores)),
        tree_(make_tree(scored.tokens)),
        byte_fallback_(fields.flag_or("byte_fallback", false)) {
    for (uint32_t id = 0; id < scored.tokens.size(); ++id) vocabulary_.add(scored.tokens[id], id);
    if (fields.find("unk_id") != nullptr) {
      unknown_id_ = fields.id("unk_id");
      if (*unknown_id_ >= scores_.size()) fields.refuse("unk_id", "an id of the vocabulary");
    }
    double worst = std::numeric_limits<double>::infinity();
    for (const double score : scores_) worst = std::min(worst, score);
    unknown_score_ = worst - kUnknownPenalty;
    for (unsigned byte = 0; byte < 256; ++byte) {
      constexpr std::string_view kHex = "0123456789ABCDEF";
      byte_tokens_[byte] =
          vocabulary_.find(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + '>');
    }
  }

  std::optional<uint32_t> find(std::string_view token) const override {
    return vocabulary_.find(token);
  }
  std::optional<std::string_view> token(uint32_t id) const override {
    return vocabulary_.token(id);
  }
  size_t size() const override { return scores_.size(); }

  void tokenize(std::string_view text, Workspace& workspace,
                std::vector<Piece>& pieces) const override {
    const uint64_t hash = hash_of(text);
    if (workspace.cache.find(text, hash, pieces)) return;
    const size_t first = pieces.size();
    find_best_path(text, workspace.paths);
    append_path(text, workspace.paths, pieces);
    workspace.cache.store(text, hash, pieces, first);
  }

 private:
  void find_best_path(std::string_view text, std::vector<Workspace::BestPath>& paths) const {
    paths.assign(text.size() + 1, {});
    for (uint32_t begin = 0; begin < text.size();) {
      const double score = paths[begin].score;
      const auto offer = [&](uint32_t bytes, uint32_t id, double token_score) {
        Workspace::BestPath& path = paths[begin + bytes];
        if (path.reached && !(token_score + score > path.score)) return;
        if (id == kNoUnknown) {
          throw DataError({.what = "a character is not in the vocabulary, and the model has no "
                                   "unk_id for it"});
        }
        path = {token_score + score, begin, id, true};
      };
      const uint32_t char_bytes = utf8_length(text[begin]);
      bool has_char = false;
      tree_.for_each_prefix(text.substr(begin), [&](uint32_t bytes, uint32_t id) {
        has_char = has_char || bytes == char_bytes;
        offer(bytes, id, scores_[id]);
      });
      if (!has_char) offer(char_bytes, unknown_id_.value_or(kNoUnknown), unknown_score_);
      begin += char_bytes;
    }
  }

  // Unknown characters side by side are one token.
  void append_path(std::string_view text, const std::vector<Workspace::BestPath>& paths,
                   std::vector<Piece>& pieces) const {
    const size_t first = pieces.size();
    bool last_unknown = false;
    for (auto end = static_cast<uint32_t>(text.size()); end > 0;) {
      const Workspace::BestPath& path = paths[end];
      const bool unknown = path.id == unknown_id_;
      if (unknown && last_unknown) {
        pieces.back().begin = path.begin;
      } else {
        pieces.push_back({path.id, path.begin, end, unknown});
      }
      last_unknown = unknown;
      end = path.begin;
    }
    std::reverse(pieces.begin() + static_cast<std::ptrdiff_t>(first), pieces.end());
    const bool any_unknown = std::any_of(pieces.begin() + static_cast<std::ptrdiff_t>(first),
                                         pieces.end(), [](const Piece& p) { return p.surface; });
    if (any_unknown) name_unknown(text, pieces, first);
  }

  // What was put together as unknown may be a token after all, or be spelled in bytes.
  void name_unknown(std::string_view text, std::vector<Piece>& pieces, size_t first) const {
    const std::vector<Piece> found(pieces.begin() + static_cast<std::ptrdiff_t>(first),
                                   pieces.end());
    pieces.resize(first);
    for (const Piece& piece : found) {
      if (!piece.surface) {
        pieces.push_back(piece);
        continue;
      }
      const std::string_view surface = text.substr(piece.begin, piece.end - piece.begin);
      if (const auto id = vocabulary_.find(surface)) {
        pieces.push_back({*id, piece.begin, piece.end, false});
      } else if (byte_fallback_ && std::ranges::all_of(surface, [this](char c) {
                   return byte_tokens_[static_cast<unsigned char>(c)].has_value();
                 })) {
        for (const char c : surface) {
          pieces.push_back({*byte_tokens_[static_cast<unsigned char>(c)], piece.begin, piece.end});
        }
      } else {
        pieces.push_back({*unknown_id_, piece.begin, piece.end, true});
      }
    }
  }

  static constexpr uint32_t kNoUnknown = PrefixTree::kNone;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  PrefixTree tree_;
  bool byte_fallback_;
  std::optional<uint32_t> unknown_id_;
  double unknown_score_ = 0;
  std::array<std::optional<uint32_t>, 256> byte_tokens_{};
};

}  // namespace

std::unique_ptr<Model> make_unigram(const nlohmann::json& json, const std::string& where) {
  const JsonFields fields(json, where);
  return std::make_unique<Unigram>(fields, read_vocabulary(fields));
}

}  // namespace accelerate::tokenizers
