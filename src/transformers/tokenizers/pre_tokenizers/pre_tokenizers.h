// How a text is cut into the pieces that the model sees: the "pre_tokenizer" of a tokenizer.json.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "transformers/tokenizers/pre_tokenizers/pre_tokenized.h"

namespace accelerate::tokenizers {

// Safe from any thread once it is set up.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;
  virtual ~PreTokenizer() = default;

  // Splits the pieces of `segment` again; may rewrite its text.
  virtual void pre_tokenize(Segment& segment) const = 0;

  // Whether the last step writes each byte as a character (see byte_level.h).
  virtual bool writes_bytes() const { return false; }
  // Leaves that step out: pieces are plain bytes from now on. Only where writes_bytes(), and before
  // the first pre_tokenize().
  virtual void leave_bytes() {}
};

// Throws DataError that names `where` for a type that is not known or fields that do not fit.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const nlohmann::json& json,
                                                 const std::string& where, int depth = 0);

// The parts of it that have files of their own: those that rewrite the text, and the one that knows
// scripts.
std::unique_ptr<PreTokenizer> make_byte_level_pre_tokenizer(const nlohmann::json& json,
                                                            const std::string& where);
std::unique_ptr<PreTokenizer> make_metaspace_pre_tokenizer(const nlohmann::json& json,
                                                           const std::string& where);
std::unique_ptr<PreTokenizer> make_scripts_pre_tokenizer(const std::string& where);

}  // namespace accelerate::tokenizers
