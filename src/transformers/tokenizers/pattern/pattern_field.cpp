#include "transformers/tokenizers/pattern/pattern_field.h"

namespace accelerate::tokenizers {

Pattern read_pattern(const JsonFields& fields) {
  const JsonFields pattern(fields.at("pattern"), fields.place("pattern"));
  if (pattern.find("String") != nullptr) {
    return Pattern::literal(pattern.text("String"), pattern.where());
  }
  return Pattern::expression(pattern.text("Regex"), pattern.where());
}

}  // namespace accelerate::tokenizers
