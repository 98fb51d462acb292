// The state of an optimizer that FSDP in Python has left in a folder of
// torch.distributed.checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "accelerate/torch_archive.h"

namespace torch::nn {
class Module;
}

namespace accelerate::checkpoint {

// The names that parameters have in their models.
using ParameterNames = std::unordered_map<const c10::TensorImpl*, std::string>;
ParameterNames names_of_parameters(const std::vector<std::shared_ptr<torch::nn::Module>>& models);

// The state as Python's state_dict() has it, for an optimizer with these parameters, whose groups
// have group_sizes[i] of them each: those of the folder are found by their names, whatever their
// order there. Tensors are whole.
//
// Throws CheckpointError for a folder that is damaged, and if parameters are not there, are in
// other groups, or their names are not known.
TorchValue read_dcp_optimizer(const std::filesystem::path& folder,
                              const std::vector<at::Tensor>& parameters,
                              const std::vector<size_t>& group_sizes, const ParameterNames& names);

}  // namespace accelerate::checkpoint
