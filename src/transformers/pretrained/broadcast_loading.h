// Loading where one rank reads the files.
#pragma once

#include <memory>
#include <string>

#include "accelerate/transformers/pretrained.h"

namespace accelerate::transformers {

struct LoadedModel {
  std::shared_ptr<PretrainedModel> model{};
  PretrainedReport report{};
  at::ScalarType dtype = at::kFloat;
};

// What this process does where it reads for itself.
LoadedModel load_here(ModelTask task, const std::string& name_or_folder,
                      const PretrainedOptions& options);

// Rank 0 of options.broadcast does load_here(), and the others get what it read. Collective. An
// error on one rank is an error on all of them before tensors are sent.
LoadedModel load_by_broadcast(ModelTask task, const std::string& name_or_folder,
                              const PretrainedOptions& options);

}  // namespace accelerate::transformers
