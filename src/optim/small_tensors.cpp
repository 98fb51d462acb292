#include "optim/small_tensors.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace accelerate {
namespace {

// Below this many elements torch's own loops stay in one thread (at::internal::GRAIN_SIZE).
constexpr int64_t kSmall = 32768;
// Products are added up in as many lanes, so that the compiler can use vector registers, and for as
// many elements, before they go into a double.
constexpr int64_t kLanes = 16;
constexpr int64_t kBlock = 1024;

template <class T>
double squares(const T* values, int64_t count) {
  double total = 0;
  int64_t begin = 0;
  while (count - begin >= kLanes) {
    const int64_t end = begin + std::min(kBlock, (count - begin) / kLanes * kLanes);
    std::array<T, kLanes> lanes{};
    for (; begin < end; begin += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const T value = values[begin + lane];
        lanes[static_cast<size_t>(lane)] += value * value;
      }
    }
    for (const T lane : lanes) total += static_cast<double>(lane);
  }
  for (; begin < count; ++begin) {
    total += static_cast<double>(values[begin]) * static_cast<double>(values[begin]);
  }
  return total;
}

template <class T>
void scale_values(T* values, int64_t count, double factor) {
  const T own_factor = static_cast<T>(factor);
  for (int64_t i = 0; i < count; ++i) values[i] *= own_factor;
}

}  // namespace

bool is_small_on_cpu(const at::Tensor& tensor) {
  return tensor.numel() < kSmall && tensor.device().is_cpu() &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble) &&
         tensor.layout() == c10::kStrided && tensor.is_non_overlapping_and_dense();
}

double sum_of_squares(const at::Tensor& small) {
  return small.scalar_type() == at::kFloat ? squares(small.data_ptr<float>(), small.numel())
                                           : squares(small.data_ptr<double>(), small.numel());
}

void scale_in_place(const at::Tensor& small, double factor) {
  if (!small.is_inference()) small.unsafeGetTensorImpl()->bump_version();
  if (small.scalar_type() == at::kFloat) {
    scale_values(small.data_ptr<float>(), small.numel(), factor);
  } else {
    scale_values(small.data_ptr<double>(), small.numel(), factor);
  }
}

}  // namespace accelerate
