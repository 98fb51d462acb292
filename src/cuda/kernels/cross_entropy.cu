// Cross entropy in place: one block reads a row of logits, finds the logarithm of the sum of their
// exponentials in one pass, and writes the gradient over them in a second. Rows that fit twice into
// the shared memory of a multiprocessor stay there between the passes; others are read again, from
// the second-level cache.
#include "cuda/kernels/device.cuh"

namespace accelerate::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kHoldingThreads = 512;
constexpr int kMostHeldBytes = 110 * 1024;

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

// What is copied asynchronously is seen by the thread that asked for it.
__device__ inline void copy_to_shared(void* to, const void* from) {
  const auto place = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

template <class T, int kPack, bool kHolds, int kBlock>
__global__ void __launch_bounds__(kBlock) cross_entropy_kernel(const CrossEntropy op) {
  wait_for_earlier_kernels();
  __shared__ Exponentials shared[32];
  __shared__ float shared_sum[32];
  extern __shared__ uint4 held[];
  const int64_t row = blockIdx.x;
  T* logits = static_cast<T*>(op.logits) + row * op.columns;
  const int packs = op.columns / kPack;
  const int64_t target = op.target[row];
  const int thread = static_cast<int>(threadIdx.x);
  if (target == op.ignore_index) {
    if (thread == 0) op.loss[row] = 0;
    if (!op.write_gradient) return;
    const float zero[kPack] = {};
    for (int pack = thread; pack < packs; pack += kBlock) store<T>(logits, pack, zero);
    return;
  }
  // Each thread reads, in both passes, what it has copied itself.
  const void* source = logits;
  if constexpr (kHolds) {
    for (int pack = thread; pack < packs; pack += kBlock) {
      copy_to_shared(held + pack, reinterpret_cast<const uint4*>(logits) + pack);
    }
    wait_for_copies();
    source = held;
  }
  Exponentials own;
  float total = 0;
#pragma unroll 2
  for (int pack = thread; pack < packs; pack += kBlock) {
    float x[kPack];
    load<T>(x, source, pack);
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
  own = warp_joined(thread % 32 < kBlock / 32 ? shared[thread % 32] : Exponentials());
  const float log_sum = own.most + logf(own.sum);
  const float columns = static_cast<float>(op.columns);
  const float kept = 1.0F - op.label_smoothing;
  const bool known = target >= 0 && target < op.columns;
  const float spread = known ? op.label_smoothing / columns : NAN;
  if (thread == 0) {
    const float chosen = known ? to_float(logits[target]) : NAN;
    float loss = kept * (log_sum - chosen) + op.z_loss * log_sum * log_sum;
    if (op.label_smoothing != 0.0F) loss += op.label_smoothing * (log_sum - total / columns);
    op.loss[row] = loss;
  }
  if (!op.write_gradient) return;
  __syncthreads();  // thread 0 has read the logit of the target
  const float scale = 1.0F + 2.0F * op.z_loss * log_sum;
#pragma unroll 2
  for (int pack = thread; pack < packs; pack += kBlock) {
    float x[kPack];
    load<T>(x, source, pack);
    const int64_t first = static_cast<int64_t>(pack) * kPack;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      x[i] = __expf(x[i] - log_sum) * scale - spread - (first + i == target ? kept : 0.0F);
    }
    store<T>(logits, pack, x);
  }
}

// Whether the current device lets the kernel have so much shared memory.
template <auto kKernel>
bool can_hold() {
  static AnswerOfDevices answers;
  return answers.ask([](int) {
    const auto found =
        cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostHeldBytes);
    if (found != cudaSuccess) (void)cudaGetLastError();  // nobody else is to find it
    return found == cudaSuccess;
  });
}

}  // namespace

void cross_entropy(const CrossEntropy& op, Kind kind, cudaStream_t stream) {
  with_type(kind, [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    constexpr int kPack = 16 / sizeof(T);
    const auto rows = static_cast<unsigned>(op.rows);
    const size_t bytes = static_cast<size_t>(op.columns) * sizeof(T);
    constexpr auto kHolding = cross_entropy_kernel<T, kPack, true, kHoldingThreads>;
    if (op.columns % kPack != 0) {
      launch(cross_entropy_kernel<T, 1, false, kThreads>, rows, kThreads, 0, stream, op);
    } else if (op.write_gradient && bytes <= kMostHeldBytes && can_hold<kHolding>()) {
      launch(kHolding, rows, kHoldingThreads, bytes, stream, op);
    } else {
      launch(cross_entropy_kernel<T, kPack, false, kThreads>, rows, kThreads, 0, stream, op);
    }
  });
}

}  // namespace accelerate::cuda
