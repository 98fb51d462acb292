#include "comm/exchange/byte_rows.h"

#include <ATen/ATen.h>

#include "comm/groups/wire.h"

namespace accelerate::comm {

at::Tensor to_bytes(const at::Tensor& tensor) { return to_wire(tensor).view(at::kByte); }

int64_t count_bytes(const at::Tensor& sample, at::IntArrayRef sizes) {
  auto bytes = static_cast<int64_t>(sample.element_size());
  for (const int64_t size : sizes) bytes *= size;
  return bytes;
}

int64_t aligned(int64_t bytes) {
  constexpr int64_t kAlignment = 16;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

at::Tensor view_in(const at::Tensor& row, int64_t offset, const at::Tensor& sample,
                   at::IntArrayRef sizes) {
  return row.narrow(0, offset, count_bytes(sample, sizes)).view(sample.scalar_type()).view(sizes);
}

}  // namespace accelerate::comm
