// Norm and AdamW on one flat vector: one launch for all parameters of a model.
#include "cuda/kernels/device.cuh"

namespace accelerate::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;

__global__ void squares_kernel(const float* values, int64_t numel, float* partials) {
  __shared__ float shared[32];
  const int64_t packs = numel / kPack;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  float total = 0;
#pragma unroll 4
  for (int64_t pack = thread; pack < packs; pack += stride) {
    float x[kPack];
    load<float>(x, values, pack);
#pragma unroll
    for (int i = 0; i < kPack; ++i) total += x[i] * x[i];
  }
  if (thread < numel % kPack) {
    const float x = values[packs * kPack + thread];
    total += x * x;
  }
  total = block_sum(total, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

template <class From, class To>
__global__ void scaled_kernel(const Scaled op) {
  wait_for_earlier_kernels();
  const float scale = *op.scale;
  const int64_t packs = op.numel / kPack;
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack < packs) {
    float x[kPack];
    float old[kPack] = {};
    load<From>(x, op.from, pack);
    if (op.add) load<To>(old, op.to, pack);
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = old[i] + x[i] * scale;
    store<To>(op.to, pack, x);
  }
  if (pack >= op.numel % kPack) return;
  const int64_t at = packs * kPack + pack;
  To* to = static_cast<To*>(op.to);
  const float old = op.add ? to_float(to[at]) : 0.0F;
  to[at] = from_float<To>(old + to_float(static_cast<const From*>(op.from)[at]) * scale);
}

__global__ void norm_kernel(const float* partials, float* norm) {
  __shared__ float shared[32];
  const float total = block_sum(partials[threadIdx.x], shared);
  if (threadIdx.x == 0) *norm = sqrtf(total);
}

__device__ inline uint32_t mixed(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ULL;
  value ^= value >> 33;
  return static_cast<uint32_t>(value);
}

// Rounds up with the probability of the part that is cut off.
__device__ inline __nv_bfloat16 rounded_by_chance(float value, uint32_t random) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7f800000U) == 0x7f800000U) return __float2bfloat16_rn(value);
  const uint32_t cut = bits + (random & 0xffffU);
  return __ushort_as_bfloat16(static_cast<unsigned short>(cut >> 16));
}

template <class T>
__device__ inline void update(const FlatAdamWLaunch& op, int64_t at, float& master, float gradient,
                              float& average, float& square, float learning_rate, float size,
                              float root) {
  average = op.beta1 * average + (1.0F - op.beta1) * gradient;
  square = op.beta2 * square + (1.0F - op.beta2) * gradient * gradient;
  if (at < op.decayed_numel) master *= 1.0F - learning_rate * op.weight_decay;
  master -= size * average / (sqrtf(square) * root + op.eps);
}

template <class T>
__device__ inline T rounded(const FlatAdamWLaunch& op, int64_t at, float step, float value) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (op.stochastic_rounding) {
      const auto count = static_cast<uint64_t>(step);
      const uint64_t key = (op.seed + count) * 0x9e3779b97f4a7c15ULL;
      return rounded_by_chance(value, mixed(key ^ static_cast<uint64_t>(at)));
    }
  }
  return from_float<T>(value);
}

// The master of an element, or what it holds where something has written to it: it does not have
// the bits of the rounded master then.
template <class T>
__device__ inline float adopted(float master, T held) {
  const float value = to_float(held);
  const float known = to_float(from_float<T>(master));
  return __float_as_uint(value) == __float_as_uint(known) ? master : value;
}

template <class T>
__global__ void __launch_bounds__(kThreads) adamw_kernel(const FlatAdamWLaunch op) {
  wait_for_earlier_kernels();
  if (op.found_inf != nullptr && *op.found_inf != 0.0F) return;
  const float step = *op.step;
  const float learning_rate = *op.learning_rate;
  float scale = 1.0F;
  if (op.norm != nullptr) {
    const float wanted = op.max_norm / (*op.norm + 1e-6F);
    if (!(wanted > 1.0F)) scale = wanted;  // also where it is not a number
  }
  const float size = learning_rate / (1.0F - powf(op.beta1, step));
  const float root = rsqrtf(1.0F - powf(op.beta2, step));
  const bool own_master = op.master == nullptr;
  const int64_t packs = op.numel / kPack;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  T* parameters = static_cast<T*>(op.parameters);
  for (int64_t pack = thread; pack < packs; pack += stride) {
    float master[kPack];
    float gradient[kPack];
    float average[kPack];
    float square[kPack];
    load<float>(gradient, op.gradient, pack);
    load<float>(average, op.exp_avg, pack);
    load<float>(square, op.exp_avg_sq, pack);
    auto* held = reinterpret_cast<Pack<T, kPack>*>(parameters) + pack;
    Pack<T, kPack> out = *held;
    if (!own_master) load<float>(master, op.master, pack);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      master[i] = own_master ? to_float(out.value[i]) : adopted(master[i], out.value[i]);
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const int64_t at = pack * kPack + i;
      update<T>(op, at, master[i], gradient[i] * scale, average[i], square[i], learning_rate, size,
                root);
      out.value[i] = rounded<T>(op, at, step, master[i]);
    }
    if (!own_master) store<float>(op.master, pack, master);
    store<float>(op.exp_avg, pack, average);
    store<float>(op.exp_avg_sq, pack, square);
    *held = out;
  }
  if (thread < op.numel % kPack) {
    const int64_t at = packs * kPack + thread;
    const T held = parameters[at];
    float master = own_master ? to_float(held) : adopted(op.master[at], held);
    update<T>(op, at, master, op.gradient[at] * scale, op.exp_avg[at], op.exp_avg_sq[at],
              learning_rate, size, root);
    if (!own_master) op.master[at] = master;
    parameters[at] = rounded<T>(op, at, step, master);
  }
}

}  // namespace

void scaled(const Scaled& op, Kind from, Kind to, cudaStream_t stream) {
  const int blocks = divide_up(op.numel / kPack + kPack, kThreads);
  with_type(from, [&](auto* source) {
    using From = std::remove_pointer_t<decltype(source)>;
    with_type(to, [&](auto* target) {
      using To = std::remove_pointer_t<decltype(target)>;
      launch(scaled_kernel<From, To>, blocks, kThreads, 0, stream, op);
    });
  });
}

void flat_norm(const float* values, int64_t numel, float* partials, float* norm,
               cudaStream_t stream) {
  squares_kernel<<<kNormPartials, kThreads, 0, stream>>>(values, numel, partials);
  norm_kernel<<<1, kNormPartials, 0, stream>>>(partials, norm);
}

void flat_adamw(const FlatAdamWLaunch& op, Kind kind, cudaStream_t stream) {
  const int64_t wanted = (op.numel / kPack + kThreads) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < 16384 ? wanted : 16384);
  with_type(kind, [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    launch(adamw_kernel<T>, blocks, kThreads, 0, stream, op);
  });
}

}  // namespace accelerate::cuda
