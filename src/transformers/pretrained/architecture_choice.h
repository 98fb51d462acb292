// Which of the known architectures a configuration means.
#pragma once

#include <string>
#include <vector>

#include "accelerate/transformers/config.h"
#include "accelerate/transformers/registry.h"

namespace accelerate::transformers {

// By model_type and task; by the name in `architectures` where the type is not known or not there.
// Throws DataError that lists what there is.
Architecture choose_architecture(ModelTask task, const ModelConfig& config);

// The type of the first of these names that is known; empty if none is.
std::string type_of_architectures(const std::vector<std::string>& names);

// "AutoModelForCausalLM".
const char* auto_class_name(ModelTask task);

}  // namespace accelerate::transformers
