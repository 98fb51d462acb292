#include "accelerate/split.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <string>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

constexpr const char* kOperation = "split_between_processes";

}  // namespace

ProcessShare process_share(int64_t length, int rank, int world_size, SplitOptions options) {
  const int64_t each = length / world_size;
  const int64_t extras = length % world_size;
  ProcessShare share;
  share.first = rank * each + std::min<int64_t>(rank, extras);
  share.last = share.first + each + (rank < extras ? 1 : 0);
  if (!options.apply_padding || world_size == 1) return share;
  if (length == 0) {
    throw UsageError({.what = "there is no input to repeat for the padding",
                      .where = kOperation,
                      .hint = "pass at least one input, or leave .apply_padding out"});
  }
  share.padding = each + (extras > 0 ? 1 : 0) - (share.last - share.first);
  return share;
}

namespace detail {

void SplitLength::add(const NestedPath& path, int64_t length) {
  if (!length_) {
    length_ = length;
    place_ = path.str();
  }
  if (length == *length_) return;
  throw UsageError({.what = "'" + place_ + "' has " + std::to_string(*length_) + " inputs, '" +
                            path.str() + "' has " + std::to_string(length),
                    .where = kOperation,
                    .hint = "all lists that are split together must have the same length"});
}

void SplitLength::add(const NestedPath& path, const at::Tensor& tensor) {
  if (tensor.defined() && tensor.dim() > 0) return add(path, tensor.size(0));
  const std::string place = path.str();
  throw UsageError({.what = (place.empty() ? std::string("the tensor") : "'" + place + "'") +
                            (tensor.defined() ? " has no dimension" : " is undefined") +
                            ", so it cannot be cut into rows",
                    .where = kOperation,
                    .hint = "pass tensors with one row for each input"});
}

int64_t SplitLength::value() const {
  if (length_) return *length_;
  throw UsageError({.what = "there is no list to split",
                    .where = kOperation,
                    .hint = "pass a vector, a tensor, or a map that holds some"});
}

at::Tensor take_share(const at::Tensor& tensor, const ProcessShare& share) {
  const at::Tensor rows = tensor.narrow(0, share.first, share.last - share.first);
  if (share.padding == 0) return rows;
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[0] = share.padding;
  return at::cat({rows, tensor.narrow(0, tensor.size(0) - 1, 1).expand(shape)});
}

}  // namespace detail
}  // namespace accelerate
