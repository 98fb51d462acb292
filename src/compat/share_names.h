// Tensors that hold a rank's share of a parameter say so, whoever gets hold of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace accelerate::compat {

// `share` holds elements of the parameter of this name. As long as it lives.
void name_share(const at::Tensor& share, const std::string& parameter);
// The name of the parameter; nothing for a tensor that is no share.
std::optional<std::string> parameter_of_share(const at::Tensor& tensor);

}  // namespace accelerate::compat
