// The document of a configuration, from which src/model_config reads sizes.
#pragma once

#include "accelerate/transformers/config.h"
#include "model_config/document.h"

namespace accelerate::transformers {

// Valid for as long as the configuration is.
const model_config::Document& document_of(const ModelConfig& config);

}  // namespace accelerate::transformers
