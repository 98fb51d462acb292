#include "transformers/tokenizers/models/models.h"

#include "transformers/tokenizers/json/json_fields.h"

namespace accelerate::tokenizers {

std::unique_ptr<Model> make_model(const nlohmann::json& json, const std::string& where) {
  const JsonFields fields(json, where);
  const std::string type = fields.type();
  if (type == "BPE") return make_bpe(json, where);
  if (type == "Unigram") return make_unigram(json, where);
  if (type == "WordPiece") return make_word_piece(json, where);
  if (type == "WordLevel") return make_word_level(json, where);
  // Files from before types were written tell by their fields.
  if (type.empty() && fields.find("merges") != nullptr) return make_bpe(json, where);
  if (type.empty() && fields.find("continuing_subword_prefix") != nullptr) {
    return make_word_piece(json, where);
  }
  refuse_type("model", fields);
}

}  // namespace accelerate::tokenizers
