#include "transformers/pretrained/dtype_names.h"

#include <array>

namespace accelerate::transformers {
namespace {

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};

// The first name of a type is the one that is written.
constexpr std::array kNames{
    DtypeName{"float32", at::kFloat},     DtypeName{"float16", at::kHalf},
    DtypeName{"bfloat16", at::kBFloat16}, DtypeName{"float64", at::kDouble},
    DtypeName{"float", at::kFloat},       DtypeName{"half", at::kHalf},
    DtypeName{"double", at::kDouble},
};

}  // namespace

std::optional<at::ScalarType> dtype_of_name(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  for (const DtypeName& each : kNames) {
    if (each.name == name) return each.dtype;
  }
  return std::nullopt;
}

const char* name_of_dtype(at::ScalarType dtype) {
  for (const DtypeName& each : kNames) {
    if (each.dtype == dtype) return each.name;
  }
  return nullptr;
}

}  // namespace accelerate::transformers
