// A prepared model as its strategy keeps it: exact values, whole or in pieces.
#pragma once

#include <map>
#include <string>

#include "accelerate/model_files.h"
#include "accelerate/strategy.h"
#include "accelerate/tensor_box.h"

namespace accelerate::checkpoint {

struct ModelState {
  // By name, in the order of get_state_dict(). They share the memory of the model; of those in
  // pieces each is what this rank holds.
  ModelStateDict tensors{};
  // All names of tensors in pieces.
  ModelLayout layout{};
  // Of these, other names of one tensor, each with the first.
  std::map<std::string, std::string> tied{};

  bool is_whole() const { return layout.empty(); }
};

// Tensors without elements count as whole. Throws UsageError for a layout that names what the model
// does not have, or does not fit what this rank holds. Not collective.
ModelState model_state(const torch::nn::Module& module, const ModelStrategy& strategy);
// The same for tensors that a layout is known of.
void require_layout_fits(const ModelStateDict& tensors, const ModelLayout& layout);

}  // namespace accelerate::checkpoint
