// What tests of encoders share.
#pragma once

#include "transformers/small_models.h"

namespace accelerate::test {

inline void set_all_dropout(ModelConfig& config, double probability) {
  for (const char* key : {"hidden_dropout_prob", "attention_probs_dropout_prob", "dropout",
                          "attention_dropout", "seq_classif_dropout"}) {
    config.set(key, probability);
  }
}

}  // namespace accelerate::test
