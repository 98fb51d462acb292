#include "checkpoint/archive/state_value_tensor.h"

#include <cstring>

namespace accelerate {
namespace {

// The elements in the order of the indices, in host memory, without lazy signs.
at::Tensor plain(const at::Tensor& tensor) {
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

}  // namespace

bool same_bits(const at::Tensor& left, const at::Tensor& right) {
  if (!left.defined() || !right.defined()) return left.defined() == right.defined();
  if (left.scalar_type() != right.scalar_type() || left.sizes() != right.sizes()) return false;
  const at::Tensor one = plain(left);
  const at::Tensor other = plain(right);
  return one.nbytes() == 0 || std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) == 0;
}

}  // namespace accelerate
