// How tokens become a text again: the "decoder" of a tokenizer.json.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace accelerate::tokenizers {

// Immutable; safe from any thread.
class Decoder {
 public:
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;

  // What `tokens` read like; joined without anything between them they are the text.
  virtual std::vector<std::string> decode(std::vector<std::string> tokens) const = 0;
};

// Throws DataError that names `where` for a type that is not known or fields that do not fit.
std::unique_ptr<const Decoder> make_decoder(const nlohmann::json& json, const std::string& where,
                                            int depth = 0);

}  // namespace accelerate::tokenizers
