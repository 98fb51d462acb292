// Every key of DeepSpeed's configuration that is known here, and what becomes of it.
// docs/deepspeed.md shows this table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/sharding/deepspeed_document.h"

namespace accelerate::config {

enum class KeyEffect {
  kUsed,
  kNoEffect,  // accepted and named once: it changes speed, messages or what only DeepSpeed has
  kRefused,   // would change what is computed, and is not available here: refused unless it is off
};

// What switches a refused key off; an absent one and null always do.
enum class KeyOff {
  kFalse,      // false
  kTrue,       // true is how it is done here
  kDisabled,   // a section without "enabled": true
  kAtMostOne,  // 0 or 1, as a number of ranks
  kMean,       // "mean"
  kAbsent,
};

struct DeepspeedKey {
  // "zero_optimization.stage"; "tensorboard.*" is a section with all that is in it.
  std::string_view path{};
  KeyEffect effect = KeyEffect::kUsed;
  std::string_view about{};
  KeyOff off = KeyOff::kFalse;  // of a refused one
};

std::span<const DeepspeedKey> deepspeed_keys();

// Walks over the whole configuration. Returns the keys that have no effect here, in the order of
// their names. Throws ConfigError for a key that is refused, for an unknown one in a section whose
// keys are all known, and at the top for one that looks like a mistyped name; others that are
// unknown at the top have no effect, as in DeepSpeed itself.
std::vector<std::string> keys_without_effect(const DeepspeedDocument& document);

}  // namespace accelerate::config
