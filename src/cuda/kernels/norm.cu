// Residual + norm, forwards and backwards. A block works on whole rows, each thread on the same few
// columns of all of them, so the sums over rows stay in registers.
#include "cuda/kernels/device.cuh"

namespace accelerate::cuda {
namespace {

template <class T, class W, bool kLayer>
__global__ void forward_kernel(const NormForward norm) {
  constexpr int kPack = 16 / sizeof(T);
  __shared__ float shared[2][32];
  const int packs = norm.columns / kPack;
  const int pack = static_cast<int>(threadIdx.x);
  const bool active = pack < packs;
  const int64_t row = blockIdx.x;
  const int64_t place = row * packs + pack;
  float x[kPack] = {};
  float total = 0;
  float squares = 0;
  if (active) {
    load<T>(x, norm.branch, place);
    if (norm.branch_bias != nullptr) {
      float bias[kPack];
      load<W>(bias, norm.branch_bias, pack);
#pragma unroll
      for (int i = 0; i < kPack; ++i) x[i] += bias[i];
    }
    if (norm.residual != nullptr) {
      float residual[kPack];
      load<T>(residual, norm.residual, place);
#pragma unroll
      for (int i = 0; i < kPack; ++i) x[i] += residual[i];
    }
    if (norm.sum != nullptr) {
      store<T>(norm.sum, place, x);
      // The backward pass sees the rounded values; so does the norm.
#pragma unroll
      for (int i = 0; i < kPack; ++i) x[i] = to_float(from_float<T>(x[i]));
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) total += x[i];
  }
  float mean = 0;
  if constexpr (kLayer) mean = block_sum(total, shared[0]) / static_cast<float>(norm.columns);
  if (active) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) squares += (x[i] - mean) * (x[i] - mean);
  }
  const float variance = block_sum(squares, shared[1]) / static_cast<float>(norm.columns);
  const float rstd = rsqrtf(variance + norm.eps);
  if (threadIdx.x == 0) {
    if constexpr (kLayer) norm.mean[row] = mean;
    norm.rstd[row] = rstd;
  }
  if (!active) return;
  float weight[kPack];
  load<W>(weight, norm.weight, pack);
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = (x[i] - mean) * rstd * weight[i];
  if (norm.bias != nullptr) {
    float bias[kPack];
    load<W>(bias, norm.bias, pack);
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] += bias[i];
  }
  store<T>(norm.output, place, x);
}

template <class T, class W, bool kLayer>
__global__ void backward_kernel(const NormBackward norm) {
  constexpr int kPack = 16 / sizeof(T);
  __shared__ float shared[2][2][32];
  const int packs = norm.columns / kPack;
  const int pack = static_cast<int>(threadIdx.x);
  const bool active = pack < packs;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const float inverse = 1.0F / static_cast<float>(norm.columns);
  float weight[kPack] = {};
  if (active) load<W>(weight, norm.weight, pack);
  float weight_sum[kPack] = {};
  float bias_sum[kPack] = {};
  float input_sum[kPack] = {};
  int parity = 0;
  for (int64_t row = blockIdx.x; row < norm.rows; row += gridDim.x, parity ^= 1) {
    const int64_t place = row * packs + pack;
    float x[kPack] = {};
    float grad[kPack] = {};
    float extra[kPack] = {};
    const float rstd = norm.rstd[row];
    float mean = 0;
    if constexpr (kLayer) mean = norm.mean[row];
    if (active) {
      load<T>(x, norm.sum, place);
      load<T>(grad, norm.grad_output, place);
      if (norm.grad_sum != nullptr) load<T>(extra, norm.grad_sum, place);
    }
    float total = 0;
    float along = 0;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      x[i] = active ? (x[i] - mean) * rstd : 0.0F;
      weight_sum[i] += grad[i] * x[i];
      bias_sum[i] += grad[i];
      grad[i] *= weight[i];
      if constexpr (kLayer) total += grad[i];
      along += grad[i] * x[i];
    }
    along = warp_sum(along);
    if constexpr (kLayer) total = warp_sum(total);
    if (lane == 0) {
      shared[parity][0][warp] = along;
      shared[parity][1][warp] = total;
    }
    __syncthreads();
    along = warp_sum(lane < warps ? shared[parity][0][lane] : 0.0F) * inverse;
    if constexpr (kLayer) total = warp_sum(lane < warps ? shared[parity][1][lane] : 0.0F) * inverse;
    if (!active) continue;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      grad[i] = rstd * (grad[i] - total - x[i] * along) + extra[i];
      input_sum[i] += grad[i];
    }
    store<T>(norm.grad_input, place, grad);
  }
  if (!active || norm.partials == nullptr) return;
  float* partials = norm.partials + static_cast<int64_t>(blockIdx.x) * 3 * norm.columns;
  const int column = pack * kPack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    partials[column + i] = weight_sum[i];
    partials[norm.columns + column + i] = bias_sum[i];
    partials[2 * norm.columns + column + i] = input_sum[i];
  }
}

}  // namespace

void norm_forward(const NormForward& norm, Kind values, Kind weights, cudaStream_t stream) {
  with_types(values, weights, [&](auto* value, auto* weight) {
    using T = std::remove_pointer_t<decltype(value)>;
    using W = std::remove_pointer_t<decltype(weight)>;
    const int threads = threads_for(norm.columns / static_cast<int>(16 / sizeof(T)));
    const auto rows = static_cast<unsigned>(norm.rows);
    if (norm.mean != nullptr) {
      forward_kernel<T, W, true><<<rows, threads, 0, stream>>>(norm);
    } else {
      forward_kernel<T, W, false><<<rows, threads, 0, stream>>>(norm);
    }
  });
}

int norm_backward_blocks(int64_t rows) { return static_cast<int>(rows < 792 ? rows : 792); }

void norm_backward(const NormBackward& norm, Kind values, Kind weights, cudaStream_t stream) {
  with_types(values, weights, [&](auto* value, auto* weight) {
    using T = std::remove_pointer_t<decltype(value)>;
    using W = std::remove_pointer_t<decltype(weight)>;
    const int threads = threads_for(norm.columns / static_cast<int>(16 / sizeof(T)));
    const int blocks = norm_backward_blocks(norm.rows);
    if (norm.mean != nullptr) {
      backward_kernel<T, W, true><<<blocks, threads, 0, stream>>>(norm);
    } else {
      backward_kernel<T, W, false><<<blocks, threads, 0, stream>>>(norm);
    }
  });
}

}  // namespace accelerate::cuda
