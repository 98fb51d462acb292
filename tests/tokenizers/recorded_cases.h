// Recorded behaviour of the Hugging Face library for one tokenizer: how its JSON reads.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "accelerate/tokenizers.h"

namespace accelerate::test {

// What a case says about special tokens, truncation and padding. Throws std::runtime_error for a
// field that is not known.
EncodeOptions options_of(const nlohmann::json& recorded);

// How much a record says: all lists with defaults for those that it leaves out, or some of them.
enum class Record { kWhole, kPart };

// What differs, "" if nothing does.
std::string difference(const Encoding& encoding, const nlohmann::json& expected, Record record);

}  // namespace accelerate::test
