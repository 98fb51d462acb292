// A checkpoint on its way into a model: what is read first, and then the tensors.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "accelerate/transformers/pretrained.h"
#include "transformers/models/allocation.h"
#include "transformers/pretrained/weight_files.h"

namespace accelerate::transformers {

struct Checkpoint {
  std::filesystem::path folder{};
  ModelConfig config{};  // with what the options change
  bool is_changed = false;
  ModelConfig generation_config{};
  WeightFiles weights{};
  at::ScalarType dtype = at::kFloat;
};

// Throws UsageError if nothing can be put there.
void check_device(c10::Device device);

// All but the tensors. Throws as load_pretrained() does.
Checkpoint read_checkpoint(const std::string& name_or_folder, const PretrainedOptions& options);

// A model of the size that the files can fill: what its configuration asks for beyond that is
// refused before memory is taken.
AllocationPlan allocation_for(const Checkpoint& checkpoint, c10::Device device);

// The model with parameters that have no values.
std::shared_ptr<PretrainedModel> build_model(ModelTask task, const ModelConfig& config);

// Puts the tensors of the files into the model, and gives the others what initialise() says.
PretrainedReport fill_model(PretrainedModel& model, const Checkpoint& checkpoint,
                            const PretrainedOptions& options);

// Gives all parameters the type and the device that they are to have, without values; those of
// keep_in_fp32_modules() float32 in place of float16. Nothing to do for models that make them by
// new_parameter(), but for these modules.
void settle_parameters(PretrainedModel& model, at::ScalarType dtype, c10::Device device);

// The parameters that have random values after loading.
std::vector<std::string> newly_initialised(const PretrainedReport& report);

// Fills parameters that no file had, in the order of the model; what is no parameter of that name
// keeps its values.
void initialise_parameters(PretrainedModel& model, const std::vector<std::string>& names);

}  // namespace accelerate::transformers
