// Tokenizers for tests, small enough to see what they must do.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "accelerate/tokenizers.h"

namespace accelerate::test {

// A tokenizer.json whose model has one token a word, 0 for an unknown one, with `parts` beside it.
nlohmann::json word_level_json(const nlohmann::json& parts = nlohmann::json::object());
// A byte-level BPE with all bytes, the merges "h e", "l l", "he ll" and no post-processor.
nlohmann::json byte_level_json();
// [CLS] text [SEP] pair [SEP], with ids 1 and 2.
nlohmann::json bert_processing();

inline Tokenizer make(const nlohmann::json& json) { return Tokenizer::from_json(json.dump()); }

}  // namespace accelerate::test
