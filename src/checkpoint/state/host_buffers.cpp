#include "checkpoint/state/host_buffers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace accelerate::checkpoint {
namespace {

// Fewer, larger pages for large buffers: a hint, without which all is only slower.
void ask_for_huge_pages(const at::Tensor& buffer) {
  constexpr size_t kHugePage = size_t{2} << 20;
  if (buffer.nbytes() < 2 * kHugePage) return;
  const auto begin = reinterpret_cast<uintptr_t>(buffer.data_ptr());
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + buffer.nbytes()) / page * page;
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

at::Tensor new_buffer(size_t bytes) {
  at::Tensor buffer = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  ask_for_huge_pages(buffer);
  return buffer;
}

}  // namespace

void HostBuffers::begin_round() { used_ = 0; }

at::Tensor HostBuffers::empty_like(const at::Tensor& tensor) {
  const auto options = at::TensorOptions(tensor.scalar_type());
  const size_t bytes = tensor.nbytes();
  if (bytes == 0) return at::empty(tensor.sizes(), options);
  if (used_ == buffers_.size()) buffers_.emplace_back();
  at::Tensor& buffer = buffers_[used_++];
  if (!buffer.defined() || buffer.nbytes() != bytes) {
    buffer.reset();  // before the new one is made
    buffer = new_buffer(bytes);
  }
  const auto keep = [owner = buffer](void*) {};
  if (!tensor.is_non_overlapping_and_dense()) {
    return at::from_blob(buffer.data_ptr(), tensor.sizes(), keep, options);
  }
  return at::from_blob(buffer.data_ptr(), tensor.sizes(), tensor.strides(), keep, options);
}

void HostBuffers::end_round() { buffers_.resize(used_); }

}  // namespace accelerate::checkpoint
