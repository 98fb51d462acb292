// What loading a model has to say.
#pragma once

#include <string>
#include <vector>

#include "accelerate/transformers/pretrained.h"
#include "transformers/pretrained/key_names.h"

namespace accelerate::transformers {

// `untied`: other names of tied parameters that have values of their own.
PretrainedReport make_report(const std::string& architecture, const std::string& folder,
                             const KeyPlan& plan, const std::vector<std::string>& untied);

// "classifier.weight [3, 32] in the files, [2, 32] in the model".
std::string mismatch_text(const KeyPlan::Mismatch& mismatch);

}  // namespace accelerate::transformers
