// What all kernels share: conversions, 16-byte accesses, sums over a block.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <array>
#include <atomic>

#include "cuda/kernels/launch.h"

namespace accelerate::cuda {

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// `Count` elements that are moved by one access of at most 16 bytes.
template <class T, int Count>
struct alignas(sizeof(T) * Count) Pack {
  T value[Count];
};

template <class T, int Count>
__device__ inline void load(float (&to)[Count], const void* from, int64_t pack) {
  if constexpr (sizeof(T) * Count <= 16) {
    const auto read = static_cast<const Pack<T, Count>*>(from)[pack];
#pragma unroll
    for (int i = 0; i < Count; ++i) to[i] = to_float(read.value[i]);
  } else {
    constexpr int kHalf = Count / 2;
    const auto* halves = static_cast<const Pack<T, kHalf>*>(from) + 2 * pack;
    const Pack<T, kHalf> read[2] = {halves[0], halves[1]};
#pragma unroll
    for (int i = 0; i < Count; ++i) to[i] = to_float(read[i / kHalf].value[i % kHalf]);
  }
}

template <class T, int Count>
__device__ inline void store(void* to, int64_t pack, const float (&from)[Count]) {
  Pack<T, Count> written;
#pragma unroll
  for (int i = 0; i < Count; ++i) written.value[i] = from_float<T>(from[i]);
  static_cast<Pack<T, Count>*>(to)[pack] = written;
}

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  return value;
}

// The sum over all threads of a block of whole warps, for every thread. `shared` holds 32 floats
// and must not be written again before another barrier was passed.
__device__ inline float block_sum(float value, float* shared) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return warp_sum(lane < warps ? shared[lane] : 0.0F);
}

// Calls `body` with a null pointer of the element type of `kind`.
template <class Body>
void with_type(Kind kind, const Body& body) {
  switch (kind) {
    case Kind::kFloat:
      body(static_cast<float*>(nullptr));
      break;
    case Kind::kHalf:
      body(static_cast<__half*>(nullptr));
      break;
    case Kind::kBfloat16:
      body(static_cast<__nv_bfloat16*>(nullptr));
      break;
  }
}

// The same for values and weights: weights have the type of the values or are float.
template <class Body>
void with_types(Kind values, Kind weights, const Body& body) {
  with_type(values, [&](auto* value) {
    if (weights == Kind::kFloat) {
      body(value, static_cast<float*>(nullptr));
    } else {
      body(value, value);
    }
  });
}

// All kernels that launch() starts call this before they touch memory: it returns when the kernels
// before them have finished.
__device__ inline void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// What is true of some devices and is asked once for each.
class AnswerOfDevices {
 public:
  template <class Question>
  bool ask(const Question& question) {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return false;
    if (device >= static_cast<int>(answers_.size())) return question(device);
    std::atomic<int>& answer = answers_[static_cast<size_t>(device)];
    if (answer == 0) answer = question(device) ? 1 : -1;
    return answer > 0;
  }

 private:
  std::array<std::atomic<int>, 64> answers_{};  // 0: not asked yet
};

// Whether the current device can set a kernel up while the one before it still runs.
inline bool overlaps_launches() {
  static AnswerOfDevices answers;
  return answers.ask([](int device) {
    int major = 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9;
  });
}

// Starts a kernel that calls wait_for_earlier_kernels(): between short kernels the time to set one
// up is a good part of the whole.
template <class Operation>
void launch(void (*kernel)(Operation), dim3 grid, dim3 block, size_t bytes, cudaStream_t stream,
            const Operation& operation) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = overlaps_launches() ? 1 : 0;
  (void)cudaLaunchKernelEx(&config, kernel, operation);  // the caller asks for the error
}

inline int threads_for(int packs) { return (packs + 31) / 32 * 32; }

inline int divide_up(int64_t value, int64_t by) { return static_cast<int>((value + by - 1) / by); }

}  // namespace accelerate::cuda
