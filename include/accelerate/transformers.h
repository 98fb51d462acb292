// Transformer models: from_pretrained, fine-tuning with an Accelerator, save_pretrained, tokenizers
// and generation. CMake target Accelerate::transformers.
#pragma once

#include "accelerate/tokenizers.h"
#include "accelerate/transformers/auto_model.h"
#include "accelerate/transformers/collator.h"
#include "accelerate/transformers/config.h"
#include "accelerate/transformers/generation.h"
#include "accelerate/transformers/key_value_cache.h"
#include "accelerate/transformers/model.h"
#include "accelerate/transformers/pretrained.h"
#include "accelerate/transformers/pretrained_tokenizer.h"
#include "accelerate/transformers/registry.h"
