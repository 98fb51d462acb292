#include "accelerate/transformers/model.h"

#include <ATen/ATen.h>

#include <string>

#include "accelerate/errors.h"

namespace accelerate::transformers {

void PretrainedModel::initialise(const std::string& name, at::Tensor parameter) const {
  const at::NoGradGuard no_gradient;
  if (name.ends_with("bias")) {
    parameter.zero_();
  } else if (parameter.dim() < 2) {
    parameter.fill_(1);
  } else {
    parameter.normal_(0.0, config_.non_negative("initializer_range", 0.02));
  }
}

bool PretrainedModel::untie(const std::string& name) {
  (void)name;
  return false;
}

at::Tensor PretrainedModel::encode(const ModelInputs& inputs) {
  (void)inputs;
  throw UsageError({.what = architecture() + " has no encoder of its own"});
}

}  // namespace accelerate::transformers
