// What is put around the tokens of a text: the "post_processor" of a tokenizer.json.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "accelerate/tokenizers.h"

namespace accelerate::tokenizers {

// Immutable; safe from any thread.
class Processor {
 public:
  Processor() = default;
  Processor(const Processor&) = delete;
  Processor& operator=(const Processor&) = delete;
  virtual ~Processor() = default;

  // Tokens that process() adds to a text or to a pair.
  virtual int64_t added_tokens(bool pair) const = 0;
  // `encodings` are the text and, if there is one, its pair; or what another processor made of
  // them. They are joined in order afterwards.
  virtual std::vector<Encoding> process(std::vector<Encoding> encodings,
                                        bool add_special_tokens) const = 0;
};

// Throws DataError that names `where` for a type that is not known or fields that do not fit.
std::unique_ptr<const Processor> make_processor(const nlohmann::json& json,
                                                const std::string& where, int depth = 0);
std::unique_ptr<const Processor> make_template_processor(const nlohmann::json& json,
                                                         const std::string& where);

// All parts of a processor's work on a text and its pair; `processor` may be nullptr.
Encoding process_texts(const Processor* processor, Encoding first, std::optional<Encoding> second,
                       bool add_special_tokens);

}  // namespace accelerate::tokenizers
