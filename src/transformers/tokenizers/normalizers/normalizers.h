// What happens to a text before it is split: the "normalizer" of a tokenizer.json.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "transformers/tokenizers/text/aligned_text.h"

namespace accelerate::tokenizers {

// Immutable; safe from any thread.
class Normalizer {
 public:
  Normalizer() = default;
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;
  virtual ~Normalizer() = default;
  virtual void normalize(AlignedText& text) const = 0;
};

// Throws DataError that names `where` for a type that is not known or fields that do not fit.
std::unique_ptr<const Normalizer> make_normalizer(const nlohmann::json& json,
                                                  const std::string& where, int depth = 0);

// The parts of it that have files of their own.
std::unique_ptr<const Normalizer> make_bert_normalizer(const nlohmann::json& json,
                                                       const std::string& where);
std::unique_ptr<const Normalizer> make_charsmap_normalizer(const nlohmann::json& json,
                                                           const std::string& where);

}  // namespace accelerate::tokenizers
