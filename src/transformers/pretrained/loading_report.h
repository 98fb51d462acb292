// What loading a model has to say.
#pragma once

#include <string>
#include <vector>

#include "accelerate/transformers/pretrained.h"
#include "transformers/pretrained/key_names.h"

namespace accelerate::transformers {

// `untied`: other names of tied parameters that have values of their own, against what the
// configuration says.
PretrainedReport make_report(const std::string& architecture, const std::string& folder,
                             const KeyPlan& plan, const std::vector<std::string>& untied);

// "a, b", at most ten of them, and how many more there are.
std::string listed(const std::vector<std::string>& names, const std::string& separator);

// "classifier.weight [3, 32] in the files, [2, 32] in the model".
std::string mismatch_text(const KeyPlan::OtherShape& mismatch);

}  // namespace accelerate::transformers
