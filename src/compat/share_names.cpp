#include "compat/share_names.h"

#include <torch/csrc/autograd/variable.h>

#include <string_view>

namespace accelerate::compat {
namespace {

constexpr std::string_view kShareOf = "share of ";

}  // namespace

void name_share(const at::Tensor& share, const std::string& parameter) {
  torch::autograd::impl::set_name(share, std::string(kShareOf) + parameter);
}

std::optional<std::string> parameter_of_share(const at::Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  const std::string& name = tensor.name();
  if (!name.starts_with(kShareOf)) return std::nullopt;
  return name.substr(kShareOf.size());
}

}  // namespace accelerate::compat
