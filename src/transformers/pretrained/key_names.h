// Which tensor of a checkpoint becomes which one of a model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "accelerate/model_files.h"
#include "accelerate/transformers/model.h"
#include "transformers/pretrained/weight_files.h"

namespace accelerate::transformers {

struct KeyPlan {
  // Name in the files -> name in the model; what is not used is not in it.
  std::map<std::string, std::string> names{};
  std::vector<std::string> missing{};     // in the order of the model
  std::vector<std::string> unexpected{};  // in the order of the files
  struct OtherShape {
    std::string name{};
    std::vector<int64_t> in_files{};
    std::vector<int64_t> in_model{};
  };
  // Of another shape: in neither of the above, and not to be loaded.
  std::vector<OtherShape> mismatched{};
  struct BothOfTied {
    std::string other_in_files{};
    std::string own_in_files{};
    std::string other{};  // in PretrainedModel::tied_weights()
  };
  // Tied, and yet in the files under both names; one of them is to be loaded.
  std::vector<BothOfTied> both_of_tied{};
};

// Finds for each stored tensor its place: under its own name, without or with the prefix of the
// base model, under the old names of layer norms, or as the other name of a tied parameter. Old
// buffers that models do not have any more are left out without a word.
KeyPlan plan_keys(const PretrainedModel& model, const ModelStateDict& state,
                  const std::vector<StoredWeight>& stored);

}  // namespace accelerate::transformers
