// The architectures of this library: one file and one line each.
#pragma once

namespace accelerate::transformers {

void register_bert();
void register_distilbert();
void register_gpt2();
void register_llama();
void register_roberta();
void register_t5();
void register_t5_heads();

// All of the above.
void register_all_models();

}  // namespace accelerate::transformers
