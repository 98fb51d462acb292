// Kernels that walk down the columns of a matrix: a block is 32 packs wide and 8 rows high, each
// thread keeps to its columns, and what is summed over rows leaves as one partial sum a block.
#include "cuda/kernels/device.cuh"

namespace accelerate::cuda {
namespace {

constexpr int kWide = 32;
constexpr int kHigh = 8;

// Adds up what the rows of a block hold for the same columns and writes it by the first of them.
template <int kPack>
__device__ void write_sums(const float (&sum)[kPack], float* partials, int columns, int pack,
                           bool active) {
  __shared__ float shared[kHigh][kWide * kPack + 1];
#pragma unroll
  for (int i = 0; i < kPack; ++i) shared[threadIdx.y][threadIdx.x * kPack + i] = sum[i];
  __syncthreads();
  if (threadIdx.y != 0 || !active) return;
  float* out = partials + static_cast<int64_t>(blockIdx.y) * columns + pack * kPack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    float total = 0;
    for (int high = 0; high < kHigh; ++high) total += shared[high][threadIdx.x * kPack + i];
    out[i] = total;
  }
}

constexpr float kGeluScale = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kGeluCube = 0.044715F;

__device__ inline float tanh_of(float x) {
  float result;
  asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// The fast tanh has half the digits of a float: enough for 16-bit values.
template <class T>
__device__ inline float tanh_for(float x) {
  if constexpr (sizeof(T) == 2) {
    return tanh_of(x);
  } else {
    return tanhf(x);
  }
}

template <Activation kActivation, class T>
__device__ inline float activated(float x) {
  if constexpr (kActivation == Activation::kGeluTanh) {
    return 0.5F * x * (1.0F + tanh_for<T>(kGeluScale * (x + kGeluCube * x * x * x)));
  } else {
    return 0.5F * x * (1.0F + erff(x * 0.7071067811865476F));
  }
}

template <Activation kActivation, class T>
__device__ inline float slope(float x) {
  if constexpr (kActivation == Activation::kGeluTanh) {
    const float t = tanh_for<T>(kGeluScale * (x + kGeluCube * x * x * x));
    const float inner = kGeluScale * (1.0F + 3.0F * kGeluCube * x * x);
    return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * inner;
  } else {
    const float density = 0.3989422804014327F * __expf(-0.5F * x * x);
    return 0.5F * (1.0F + erff(x * 0.7071067811865476F)) + x * density;
  }
}

template <class T, class W, Activation kActivation, bool kForward>
__global__ void activation_kernel(const BiasActivation op) {
  wait_for_earlier_kernels();
  constexpr int kPack = 16 / sizeof(T);
  const int packs = op.columns / kPack;
  const int pack = static_cast<int>(blockIdx.x) * kWide + static_cast<int>(threadIdx.x);
  const bool active = pack < packs;
  float bias[kPack] = {};
  float sum[kPack] = {};
  if (active && op.bias != nullptr) load<W>(bias, op.bias, pack);
  const int64_t stride = static_cast<int64_t>(gridDim.y) * kHigh;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * kHigh + threadIdx.y;
       row < op.rows && active; row += stride) {
    float x[kPack];
    load<T>(x, op.input, row * packs + pack);
    if constexpr (kForward) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) x[i] = activated<kActivation, T>(x[i] + bias[i]);
    } else {
      float grad[kPack];
      load<T>(grad, op.grad_output, row * packs + pack);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        x[i] = grad[i] * slope<kActivation, T>(x[i] + bias[i]);
        sum[i] += x[i];
      }
    }
    store<T>(op.output, row * packs + pack, x);
  }
  if constexpr (!kForward) {
    if (op.partials != nullptr) write_sums(sum, op.partials, op.columns, pack, active);
  }
}

template <class T>
__global__ void concatenate_kernel(const Concatenation op) {
  wait_for_earlier_kernels();
  constexpr int kPack = 16 / sizeof(T);
  const int part_packs = op.columns / kPack;
  const int packs = part_packs * op.parts;
  const int pack = static_cast<int>(blockIdx.x) * kWide + static_cast<int>(threadIdx.x);
  const bool active = pack < packs;
  const int part = active ? pack / part_packs : 0;
  const void* from = part == 0 ? op.part[0] : part == 1 ? op.part[1] : op.part[2];
  const int inside = pack - part * part_packs;
  float sum[kPack] = {};
  const int64_t stride = static_cast<int64_t>(gridDim.y) * kHigh;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * kHigh + threadIdx.y;
       row < op.rows && active; row += stride) {
    const auto read = static_cast<const Pack<T, kPack>*>(from)[row * part_packs + inside];
    if (op.output != nullptr) static_cast<Pack<T, kPack>*>(op.output)[row * packs + pack] = read;
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum[i] += to_float(read.value[i]);
  }
  if (op.partials != nullptr) write_sums(sum, op.partials, op.columns * op.parts, pack, active);
}

__global__ void sum_partials_kernel(const PartialSums sums) {
  wait_for_earlier_kernels();
  __shared__ float shared[32][33];
  const int which = static_cast<int>(blockIdx.y);
  if (sums.out[which] == nullptr) return;
  const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  float total = 0;
  if (column < sums.columns) {
    const float* from = sums.partials + static_cast<int64_t>(which) * sums.columns + column;
    const int64_t stride = static_cast<int64_t>(sums.sums) * sums.columns;
#pragma unroll 4
    for (int block = static_cast<int>(threadIdx.y); block < sums.blocks; block += 32) {
      total += from[block * stride];
    }
  }
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  total = warp_sum(shared[threadIdx.x][threadIdx.y]);
  const int owned = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.y);
  if (threadIdx.x != 0 || owned >= sums.columns) return;
  const auto put = [&](auto* out) {
    using T = std::remove_pointer_t<decltype(out)>;
    if (sums.add[which]) total += to_float(out[owned]);
    out[owned] = from_float<T>(total);
  };
  switch (sums.kind[which]) {
    case Kind::kFloat:
      put(static_cast<float*>(sums.out[which]));
      break;
    case Kind::kHalf:
      put(static_cast<__half*>(sums.out[which]));
      break;
    case Kind::kBfloat16:
      put(static_cast<__nv_bfloat16*>(sums.out[which]));
      break;
  }
}

dim3 grid_of(int64_t rows, int columns, Kind kind) {
  const auto wide = static_cast<unsigned>(divide_up(columns / elements_per_access(kind), kWide));
  return {wide, static_cast<unsigned>(row_blocks(rows, columns, kind)), 1};
}

template <class T, class W, Activation kActivation>
void launch_activation(const BiasActivation& op, dim3 grid, cudaStream_t stream) {
  const dim3 block(kWide, kHigh);
  if (op.grad_output == nullptr) {
    launch(activation_kernel<T, W, kActivation, true>, grid, block, 0, stream, op);
  } else {
    launch(activation_kernel<T, W, kActivation, false>, grid, block, 0, stream, op);
  }
}

}  // namespace

int row_blocks(int64_t rows, int columns, Kind kind) {
  // About 2,000 blocks in all, each with at least 4 rows a thread where there are so many.
  const int wide = divide_up(columns / elements_per_access(kind), kWide);
  const int most = divide_up(rows, static_cast<int64_t>(kHigh) * 4);
  const int wanted = divide_up(2112, wide);
  return most < wanted ? most : wanted;
}

void bias_activation(const BiasActivation& op, Activation activation, Kind values, Kind weights,
                     cudaStream_t stream) {
  const dim3 grid = grid_of(op.rows, op.columns, values);
  with_types(values, weights, [&](auto* value, auto* weight) {
    using T = std::remove_pointer_t<decltype(value)>;
    using W = std::remove_pointer_t<decltype(weight)>;
    if (activation == Activation::kGeluTanh) {
      launch_activation<T, W, Activation::kGeluTanh>(op, grid, stream);
    } else {
      launch_activation<T, W, Activation::kGeluErf>(op, grid, stream);
    }
  });
}

void concatenate(const Concatenation& op, Kind kind, cudaStream_t stream) {
  const dim3 grid = grid_of(op.rows, op.columns * op.parts, kind);
  with_type(kind, [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    launch(concatenate_kernel<T>, grid, dim3(kWide, kHigh), 0, stream, op);
  });
}

void sum_partials(const PartialSums& sums, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(divide_up(sums.columns, 32)),
                  static_cast<unsigned>(sums.sums));
  launch(sum_partials_kernel, grid, dim3(32, 32), 0, stream, sums);
}

}  // namespace accelerate::cuda
