// The architectures of this library: one file and one line each.
#pragma once

#include <string>

#include "accelerate/transformers/registry.h"
#include "model_config/model_classes.h"

namespace accelerate::transformers {

// What a model for this task has on top of its body.
model_config::Head head_of(ModelTask task);

// Registers one under the name that its files have for it.
template <class Model>
void register_own(const std::string& model_type, ModelTask task) {
  register_architecture<Model>(model_type, task,
                               std::string(model_config::class_of(model_type, head_of(task)).name));
}

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
