// The models that look whole words or their beginnings up: WordPiece and WordLevel.
#include <algorithm>

#include "accelerate/errors.h"
#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/models/models.h"
#include "transformers/tokenizers/models/vocabulary.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

class VocabularyModel : public Model {
 public:
  explicit VocabularyModel(const JsonFields& fields)
      : vocabulary_(Vocabulary::from_json(fields.at("vocab"), fields.place("vocab"))),
        unknown_(fields.text("unk_token")),
        unknown_id_(vocabulary_.find(unknown_)) {}

  std::optional<uint32_t> find(std::string_view token) const override {
    return vocabulary_.find(token);
  }
  std::optional<std::string_view> token(uint32_t id) const override {
    return vocabulary_.token(id);
  }
  size_t size() const override { return vocabulary_.size(); }

 protected:
  const Vocabulary& vocabulary() const { return vocabulary_; }
  Piece unknown_piece(std::string_view text) const {
    if (!unknown_id_) {
      throw DataError(
          {.what = "a word is not in the vocabulary, nor is the unknown token " + unknown_,
           .hint = "add the token to the vocabulary of the model"});
    }
    return {*unknown_id_, 0, static_cast<uint32_t>(text.size())};
  }

 private:
  Vocabulary vocabulary_;
  std::string unknown_;
  std::optional<uint32_t> unknown_id_;
};

class WordLevel final : public VocabularyModel {
 public:
  using VocabularyModel::VocabularyModel;
  void tokenize(std::string_view text, Workspace& /*workspace*/,
                std::vector<Piece>& pieces) const override {
    const auto id = vocabulary().find(text);
    pieces.push_back(id ? Piece{*id, 0, static_cast<uint32_t>(text.size())} : unknown_piece(text));
  }
};

// The longest beginning that is in the vocabulary, then the longest continuation, and so on; a word
// that does not come out even is unknown as a whole.
class WordPiece final : public VocabularyModel {
 public:
  explicit WordPiece(const JsonFields& fields)
      : VocabularyModel(fields),
        prefix_(fields.text("continuing_subword_prefix")),
        longest_word_(static_cast<size_t>(fields.count("max_input_chars_per_word"))) {}

  void tokenize(std::string_view text, Workspace& workspace,
                std::vector<Piece>& pieces) const override {
    const uint64_t hash = hash_of(text);
    if (workspace.cache.find(text, hash, pieces)) return;
    const size_t first = pieces.size();
    if (count_chars(text) > longest_word_ || !append_pieces(text, workspace.text, pieces)) {
      pieces.resize(first);
      pieces.push_back(unknown_piece(text));
    }
    workspace.cache.store(text, hash, pieces, first);
  }

 private:
  bool append_pieces(std::string_view text, std::string& candidate,
                     std::vector<Piece>& pieces) const {
    for (size_t begin = 0; begin < text.size();) {
      candidate.clear();
      if (begin > 0) candidate = prefix_;
      const size_t head = candidate.size();
      if (vocabulary().longest() <= head) return false;
      size_t end = std::min(text.size(), begin + vocabulary().longest() - head);
      end = boundary_before(text, end);
      candidate += text.substr(begin, end > begin ? end - begin : 0);
      std::optional<uint32_t> id;
      while (end > begin) {
        id = vocabulary().find(candidate);
        if (id) break;
        end = boundary_before(text, end - 1);
        candidate.resize(head + end - std::min(begin, end));
      }
      if (!id) return false;
      pieces.push_back({*id, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
      begin = end;
    }
    return true;
  }

  // The last beginning of a character at or before `position`.
  static size_t boundary_before(std::string_view text, size_t position) {
    while (position > 0 && position < text.size() &&
           (static_cast<unsigned char>(text[position]) & 0xc0) == 0x80) {
      --position;
    }
    return position;
  }

  std::string prefix_;
  size_t longest_word_;
};

}  // namespace

std::unique_ptr<Model> make_word_piece(const nlohmann::json& json, const std::string& where) {
  return std::make_unique<WordPiece>(JsonFields(json, where));
}

std::unique_ptr<Model> make_word_level(const nlohmann::json& json, const std::string& where) {
  return std::make_unique<WordLevel>(JsonFields(json, where));
}

}  // namespace accelerate::tokenizers
