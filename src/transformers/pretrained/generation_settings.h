// The settings of generate() among those of a model.
#pragma once

#include <filesystem>

#include "accelerate/transformers/config.h"

namespace accelerate::transformers {

// generation_config.json of the folder; where there is none, what config.json has of it. Throws
// DataError if the file is no such one.
ModelConfig read_generation_config(const std::filesystem::path& folder, const ModelConfig& config);

// What a configuration has of the settings of generate().
ModelConfig generation_settings_of(const ModelConfig& config);

// Takes the settings out that belong into generation_config.json alone.
void remove_generation_settings(ModelConfig& config);

}  // namespace accelerate::transformers
