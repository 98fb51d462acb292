// Padding of the tensors of a nested value.
#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/operations.h"
#include "comm/exchange/value_agreement.h"

namespace accelerate {
namespace {

// `tensor` with `size` entries in dimension `dim`, its own at the end if `at_end`; the others are
// `value`. Gradients flow to its own.
at::Tensor padded(const at::Tensor& tensor, int64_t dim, int64_t size, const c10::Scalar& value,
                  bool at_end) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[static_cast<size_t>(dim)] = size - tensor.size(dim);
  const at::Tensor padding = at::full(sizes, value, tensor.options().requires_grad(false));
  return at_end ? at::cat({padding, tensor}, dim) : at::cat({tensor, padding}, dim);
}

// The dimension counted from the front, or -1 if there is none.
int64_t find_dim(int64_t dim, int64_t dims) {
  if (dim < 0) dim += dims;
  return dim < dims ? std::max<int64_t>(dim, -1) : -1;
}

}  // namespace

namespace detail {

void pad_operands(Communicator& ranks, Operands& operands, const PadOptions& options) {
  const comm::AgreedSizes sizes = comm::agree(ranks, operands, comm::Fit::kSizes);
  if (sizes.equal()) return;
  for (size_t i = 0; i < operands.tensors.size(); ++i) {
    at::Tensor& tensor = *operands.tensors[i];
    const int64_t dim = find_dim(options.dim, tensor.dim());
    if (dim < 0) continue;
    int64_t longest = 0;
    for (int rank = 0; rank < ranks.world_size(); ++rank) {
      longest = std::max(longest, sizes.of(rank, i)[static_cast<size_t>(dim)]);
    }
    if (longest > tensor.size(dim)) {
      tensor = padded(tensor, dim, longest, options.pad_index, options.pad_first);
    }
  }
}

int64_t padded_batch_size(int64_t batch_size, int64_t num_processes) {
  if (batch_size < 0 || num_processes < 1) {
    throw UsageError({.what = "a batch of " + std::to_string(batch_size) + " cannot be shared by " +
                              std::to_string(num_processes) + " processes",
                      .where = "pad_input_tensors",
                      .hint = "pass the size of the batch and the number of processes"});
  }
  return (batch_size + num_processes - 1) / num_processes * num_processes;
}

at::Tensor pad_by_last(const at::Tensor& tensor, int64_t batch_size, int64_t target, int64_t dim) {
  if (!tensor.defined()) return tensor;
  dim = find_dim(dim, tensor.dim());
  if (dim < 0 || tensor.size(dim) != batch_size) return tensor;
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[static_cast<size_t>(dim)] = target - batch_size;
  return at::cat({tensor, tensor.narrow(dim, batch_size - 1, 1).expand(sizes)}, dim);
}

}  // namespace detail
}  // namespace accelerate
