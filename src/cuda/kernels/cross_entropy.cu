// Cross entropy in place: one block reads a row of logits, finds the logarithm of the sum of their
// exponentials in one pass, and writes the gradient over them in a second, which finds the row in
// the second-level cache.
#include "cuda/kernels/device.cuh"

namespace accelerate::cuda {
namespace {

constexpr int kThreads = 1024;

// Sums of exponentials relative to a maximum.
struct Exponentials {
  float most = -INFINITY;
  float sum = 0;
};

__device__ inline Exponentials joined(Exponentials a, Exponentials b) {
  const float most = fmaxf(a.most, b.most);
  if (most == -INFINITY) return {};
  return {most, a.sum * __expf(a.most - most) + b.sum * __expf(b.most - most)};
}

__device__ inline Exponentials warp_joined(Exponentials own) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const Exponentials other{__shfl_xor_sync(0xffffffffu, own.most, offset),
                             __shfl_xor_sync(0xffffffffu, own.sum, offset)};
    own = joined(own, other);
  }
  return own;
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) cross_entropy_kernel(const CrossEntropy op) {
  __shared__ Exponentials shared[32];
  __shared__ float shared_sum[32];
  const int64_t row = blockIdx.x;
  T* logits = static_cast<T*>(op.logits) + row * op.columns;
  const int packs = op.columns / kPack;
  const int64_t target = op.target[row];
  const int thread = static_cast<int>(threadIdx.x);
  if (target == op.ignore_index) {
    if (thread == 0) op.loss[row] = 0;
    if (!op.write_gradient) return;
    const float zero[kPack] = {};
    for (int pack = thread; pack < packs; pack += kThreads) store<T>(logits, pack, zero);
    return;
  }
  Exponentials own;
  float total = 0;
#pragma unroll 2
  for (int pack = thread; pack < packs; pack += kThreads) {
    float x[kPack];
    load<T>(x, logits, pack);
    float most = x[0];
#pragma unroll
    for (int i = 1; i < kPack; ++i) most = fmaxf(most, x[i]);
    most = fmaxf(most, own.most);
    if (most == -INFINITY) continue;
    float sum = own.sum * __expf(own.most - most);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      sum += __expf(x[i] - most);
      total += x[i];
    }
    own = {most, sum};
  }
  own = warp_joined(own);
  if (thread % 32 == 0) shared[thread / 32] = own;
  if (op.label_smoothing != 0.0F) {
    total = block_sum(total, shared_sum);
  } else {
    __syncthreads();
  }
  own = warp_joined(shared[thread % 32]);
  const float log_sum = own.most + logf(own.sum);
  const float columns = static_cast<float>(op.columns);
  const float kept = 1.0F - op.label_smoothing;
  const float spread = op.label_smoothing / columns;
  if (thread == 0) {
    const bool known = target >= 0 && target < op.columns;
    const float chosen = known ? to_float(logits[target]) : NAN;
    float loss = kept * (log_sum - chosen) + op.z_loss * log_sum * log_sum;
    if (op.label_smoothing != 0.0F) loss += op.label_smoothing * (log_sum - total / columns);
    op.loss[row] = loss;
  }
  if (!op.write_gradient) return;
  __syncthreads();  // thread 0 has read the logit of the target
  const float scale = 1.0F + 2.0F * op.z_loss * log_sum;
#pragma unroll 2
  for (int pack = thread; pack < packs; pack += kThreads) {
    float x[kPack];
    load<T>(x, logits, pack);
    const int64_t first = static_cast<int64_t>(pack) * kPack;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      x[i] = __expf(x[i] - log_sum) * scale - spread - (first + i == target ? kept : 0.0F);
    }
    store<T>(logits, pack, x);
  }
}

}  // namespace

void cross_entropy(const CrossEntropy& op, Kind kind, cudaStream_t stream) {
  with_type(kind, [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    constexpr int kPack = 16 / sizeof(T);
    const auto rows = static_cast<unsigned>(op.rows);
    if (op.columns % kPack == 0) {
      cross_entropy_kernel<T, kPack><<<rows, kThreads, 0, stream>>>(op);
    } else {
      cross_entropy_kernel<T, 1><<<rows, kThreads, 0, stream>>>(op);
    }
  });
}

}  // namespace accelerate::cuda
