#include "transformers/models/all_models.h"

namespace accelerate::transformers {

void register_all_models() {
  register_bert();
  register_distilbert();
  register_gpt2();
  register_llama();
  register_roberta();
  register_t5();
  register_t5_heads();
}

}  // namespace accelerate::transformers
