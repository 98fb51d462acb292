#include <torch/nn/module.h>

#include "accelerate/errors.h"
#include "accelerate/model_files.h"
#include "files/size_text.h"

namespace accelerate {
namespace {

// Parameters, then buffers, then children: the order of Python, which differs from that of
// named_parameters() and named_buffers() one after the other.
void append_state(const torch::nn::Module& module, const std::string& prefix,
                  ModelStateDict& state) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (item.value().defined()) state.insert(prefix + item.key(), item.value());
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) state.insert(prefix + item.key(), item.value());
  }
  for (const auto& child : module.named_children()) {
    append_state(*child.value(), prefix + child.key() + '.', state);
  }
}

}  // namespace

ModelStateDict get_state_dict(const torch::nn::Module& module) {
  ModelStateDict state;
  append_state(module, "", state);
  return state;
}

ShardSize::ShardSize(const char* text) : bytes_(files::parse_shard_size(text)) {}
ShardSize::ShardSize(const std::string& text) : bytes_(files::parse_shard_size(text)) {}

uint64_t ShardSize::checked(int64_t bytes) {
  if (bytes < 0) {
    throw UsageError({.what = "a shard cannot have " + std::to_string(bytes) + " bytes",
                      .hint = "give a number of bytes or a string like \"10GB\""});
  }
  return static_cast<uint64_t>(bytes);
}

double dtype_byte_size(at::ScalarType dtype) {
  constexpr double kBool = 1.0 / 8;
  return dtype == at::kBool ? kBool : static_cast<double>(c10::elementSize(dtype));
}

}  // namespace accelerate
