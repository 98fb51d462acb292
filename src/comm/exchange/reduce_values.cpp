// Reduction and broadcast of all tensors of a nested value.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <vector>

#include "accelerate/detail/operands.h"
#include "comm/exchange/byte_rows.h"
#include "comm/exchange/host_leaves.h"
#include "comm/exchange/tensor_buckets.h"
#include "comm/exchange/value_agreement.h"
#include "comm/exchange/value_checks.h"

namespace accelerate::detail {
namespace {

std::vector<int64_t> sizes_in_bytes(const Operands& operands) {
  std::vector<int64_t> bytes;
  bytes.reserve(operands.tensors.size());
  for (const at::Tensor* tensor : operands.tensors) {
    bytes.push_back(comm::count_bytes(*tensor, tensor->sizes()));
  }
  return bytes;
}

at::Tensor copy_of(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().clone(at::MemoryFormat::Contiguous);
}

// Reduces tensors of one dtype and device in one row, of which they are views afterwards.
void reduce_bucket(Communicator& ranks, const std::vector<at::Tensor*>& tensors, ReduceOp op) {
  if (tensors.size() == 1) {
    *tensors[0] = copy_of(*tensors[0]);
    ranks.all_reduce(*tensors[0], op);
    return;
  }
  std::vector<at::Tensor> flat;
  flat.reserve(tensors.size());
  for (const at::Tensor* tensor : tensors) flat.push_back(tensor->detach().reshape({-1}));
  at::Tensor row = at::cat(flat);
  ranks.all_reduce(row, op);
  int64_t first = 0;
  for (at::Tensor* tensor : tensors) {
    const at::Tensor part = row.narrow(0, first, tensor->numel());
    first += tensor->numel();
    *tensor = part.view(tensor->sizes());
  }
}

// Replaces tensors of one device by those of rank `from`, in one row of bytes of which they are
// views afterwards.
void broadcast_bucket(Communicator& ranks, const std::vector<at::Tensor*>& tensors, int from) {
  if (tensors.size() == 1) {
    *tensors[0] = copy_of(*tensors[0]);
    ranks.broadcast(*tensors[0], from);
    return;
  }
  std::vector<int64_t> offsets;
  int64_t size = 0;
  for (const at::Tensor* tensor : tensors) {
    offsets.push_back(size);
    size += comm::aligned(comm::count_bytes(*tensor, tensor->sizes()));
  }
  at::Tensor row = at::zeros({size}, tensors[0]->options().dtype(at::kByte).requires_grad(false));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor part = comm::view_in(row, offsets[i], *tensors[i], tensors[i]->sizes());
    if (ranks.rank() == from) part.copy_(tensors[i]->detach());
    *tensors[i] = part;
  }
  ranks.broadcast(row, from);
}

std::vector<at::Tensor*> pick(const Operands& operands, const std::vector<size_t>& bucket) {
  std::vector<at::Tensor*> tensors;
  tensors.reserve(bucket.size());
  for (const size_t tensor : bucket) tensors.push_back(operands.tensors[tensor]);
  return tensors;
}

}  // namespace

void reduce_operands(Communicator& ranks, Operands& operands, ReduceOp op, double scale) {
  comm::check_devices(ranks, operands);
  comm::check_reducible(operands, op, scale);
  (void)comm::agree(ranks, operands, comm::Fit::kExact);
  at::NoGradGuard no_grad;
  if (ranks.world_size() == 1) {
    for (at::Tensor* tensor : operands.tensors) {
      *tensor = scale == 1.0 ? tensor->detach() : tensor->mul(scale);
    }
    return;
  }
  for (const auto& bucket :
       comm::bucket_tensors(operands, sizes_in_bytes(operands), comm::BucketBy::kDeviceAndDtype)) {
    reduce_bucket(ranks, pick(operands, bucket), op);
  }
  if (scale == 1.0) return;
  for (at::Tensor* tensor : operands.tensors) tensor->mul_(scale);
}

void broadcast_operands(Communicator& ranks, Operands& operands, int from) {
  comm::check_devices(ranks, operands);
  comm::check_root(ranks, operands, from);
  (void)comm::agree(ranks, operands, comm::Fit::kExact);
  at::NoGradGuard no_grad;
  if (ranks.world_size() == 1) {
    for (at::Tensor* tensor : operands.tensors) *tensor = tensor->detach();
    return;
  }
  for (const auto& bucket :
       comm::bucket_tensors(operands, sizes_in_bytes(operands), comm::BucketBy::kDevice)) {
    broadcast_bucket(ranks, pick(operands, bucket), from);
  }
  if (operands.host_leaves.empty()) return;
  const bool is_root = ranks.rank() == from;
  comm::assign_leaves(
      operands.host_leaves,
      {ranks.broadcast_bytes(is_root ? comm::message_of(operands.host_leaves) : "", from)});
}

}  // namespace accelerate::detail
