// Residual + norm, forwards and backwards. A block works on whole rows, each thread on the same few
// columns of all of them, so the sums over rows stay in registers.
#include "cuda/kernels/device.cuh"

namespace accelerate::cuda {
namespace {

template <class T, class W, bool kLayer>
__global__ void forward_kernel(const NormForward norm) {
  wait_for_earlier_kernels();
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

// Rows that a block works on at a time.
constexpr int kMostGroups = 2;

template <class T>
struct BackwardRow {
  Pack<T, 16 / sizeof(T)> x, grad, extra;
  float mean, rstd;
};

// The next row is on its way while the present one is summed up: without that, loads and barriers
// take turns. Blocks are one group of threads a row; groups add their sums up at the end.
//
// With 96 registers three blocks of two rows of GPT-2's width share a multiprocessor; fewer spill,
// more leave room for two. Blocks of more than 640 threads must do with 64.
template <class T, class W, bool kLayer, int kRegisters>
__global__ void __maxnreg__(kRegisters) backward_kernel(const NormBackward norm) {
  wait_for_earlier_kernels();
  constexpr int kPack = 16 / sizeof(T);
  using Packed = Pack<T, kPack>;
  __shared__ float shared[2][kMostGroups][2][32];
  extern __shared__ float sums_of_group[];
  const int packs = norm.columns / kPack;
  const int pack = static_cast<int>(threadIdx.x);
  const bool active = pack < packs;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int group = static_cast<int>(threadIdx.y);
  const float inverse = 1.0F / static_cast<float>(norm.columns);
  float weight[kPack] = {};
  if (active) load<W>(weight, norm.weight, pack);
  float sums[3][kPack] = {};  // of the gradients of weight, bias and branch_bias
  const auto fetch = [&](int64_t row) {
    BackwardRow<T> found = {};
    if (!active || row >= norm.rows) return found;
    const int64_t place = row * packs + pack;
    found.x = static_cast<const Packed*>(norm.sum)[place];
    found.grad = static_cast<const Packed*>(norm.grad_output)[place];
    if (norm.grad_sum != nullptr) found.extra = static_cast<const Packed*>(norm.grad_sum)[place];
    found.rstd = norm.rstd[row];
    if constexpr (kLayer) found.mean = norm.mean[row];
    return found;
  };
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.y;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.y;
  BackwardRow<T> next = fetch(first + group);
  int parity = 0;
  for (int64_t base = first; base < norm.rows; base += stride, parity ^= 1) {
    const int64_t row = base + group;
    const BackwardRow<T> own = next;
    next = fetch(row + stride);
    float x[kPack];
    float grad[kPack];
    float total = 0;
    float along = 0;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      x[i] = (to_float(own.x.value[i]) - own.mean) * own.rstd;
      grad[i] = to_float(own.grad.value[i]);
      sums[0][i] += grad[i] * x[i];
      sums[1][i] += grad[i];
      grad[i] *= weight[i];
      if constexpr (kLayer) total += grad[i];
      along += grad[i] * x[i];
    }
    along = warp_sum(along);
    if constexpr (kLayer) total = warp_sum(total);
    if (lane == 0) {
      shared[parity][group][0][warp] = along;
      shared[parity][group][1][warp] = total;
    }
    __syncthreads();
    along = warp_sum(lane < warps ? shared[parity][group][0][lane] : 0.0F) * inverse;
    if constexpr (kLayer) {
      total = warp_sum(lane < warps ? shared[parity][group][1][lane] : 0.0F) * inverse;
    }
    if (!active || row >= norm.rows) continue;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      grad[i] = own.rstd * (grad[i] - total - x[i] * along) + to_float(own.extra.value[i]);
      sums[2][i] += grad[i];
    }
    store<T>(norm.grad_input, row * packs + pack, grad);
  }
  if (norm.partials == nullptr) return;
  const int column = pack * kPack;
  if (active && group > 0) {
#pragma unroll
    for (int which = 0; which < 3; ++which) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        sums_of_group[which * norm.columns + column + i] = sums[which][i];
      }
    }
  }
  if (blockDim.y > 1) __syncthreads();
  if (!active || group > 0) return;
  float* partials = norm.partials + static_cast<int64_t>(blockIdx.x) * 3 * norm.columns;
#pragma unroll
  for (int which = 0; which < 3; ++which) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const int place = which * norm.columns + column + i;
      partials[place] = sums[which][i] + (blockDim.y > 1 ? sums_of_group[place] : 0.0F);
    }
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
      launch(forward_kernel<T, W, true>, rows, threads, 0, stream, norm);
    } else {
      launch(forward_kernel<T, W, false>, rows, threads, 0, stream, norm);
    }
  });
}

// About as many as fit onto a large GPU at once: each leaves partial sums that are read again.
int norm_backward_blocks(int64_t rows) { return static_cast<int>(rows < 396 ? rows : 396); }

void norm_backward(const NormBackward& norm, Kind values, Kind weights, cudaStream_t stream) {
  with_types(values, weights, [&](auto* value, auto* weight) {
    using T = std::remove_pointer_t<decltype(value)>;
    using W = std::remove_pointer_t<decltype(weight)>;
    const int threads = threads_for(norm.columns / static_cast<int>(16 / sizeof(T)));
    const int blocks = norm_backward_blocks(norm.rows);
    const bool pairs = threads <= 256;
    const dim3 block(static_cast<unsigned>(threads), pairs ? kMostGroups : 1);
    const size_t bytes = pairs ? 3 * sizeof(float) * static_cast<size_t>(norm.columns) : 0;
    const bool layer = norm.mean != nullptr;
    if (threads <= 512) {
      launch(layer ? backward_kernel<T, W, true, 96> : backward_kernel<T, W, false, 96>, blocks,
             block, bytes, stream, norm);
    } else {
      launch(layer ? backward_kernel<T, W, true, 64> : backward_kernel<T, W, false, 64>, blocks,
             block, bytes, stream, norm);
    }
  });
}

}  // namespace accelerate::cuda
