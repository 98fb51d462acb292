// SwiGLU, rotary embedding, token and position embedding.
#include "cuda/kernels/device.cuh"

namespace accelerate::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int kPack>
__global__ void swiglu_kernel(const SwiGluLaunch op) {
  wait_for_earlier_kernels();
  const int64_t packs = op.columns / kPack;
  const int64_t place = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (place >= op.rows * packs) return;
  const int64_t row = place / packs;
  const int64_t gate_place = row * 2 * packs + place % packs;
  float gate[kPack];
  float up[kPack];
  load<T>(gate, op.input, gate_place);
  load<T>(up, op.input, gate_place + packs);
  if (op.grad_output == nullptr) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) up[i] *= gate[i] / (1.0F + __expf(-gate[i]));
    store<T>(op.output, place, up);
    return;
  }
  float grad[kPack];
  load<T>(grad, op.grad_output, place);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const float sigmoid = 1.0F / (1.0F + __expf(-gate[i]));
    const float silu = gate[i] * sigmoid;
    const float grad_gate = grad[i] * up[i] * (sigmoid + silu * (1.0F - sigmoid));
    up[i] = grad[i] * silu;
    gate[i] = grad_gate;
  }
  store<T>(op.output, gate_place, gate);
  store<T>(op.output, gate_place + packs, up);
}

template <class T>
__global__ void rotary_kernel(const RotaryLaunch op) {
  wait_for_earlier_kernels();
  const int64_t half = op.width / 2;
  const int64_t place = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (place >= op.outer * op.positions * op.heads * half) return;
  const int64_t inside = place % half;
  const int64_t head = place / half;  // over outer, positions, heads
  const int64_t position = head / op.heads % op.positions;
  const float cosine = op.cosine[position * half + inside];
  const float sine =
      op.backwards ? -op.sine[position * half + inside] : op.sine[position * half + inside];
  const int64_t first = head * op.width + inside;
  const T* input = static_cast<const T*>(op.input);
  const float a = to_float(input[first]);
  const float b = to_float(input[first + half]);
  T* output = static_cast<T*>(op.output);
  output[first] = from_float<T>(a * cosine - b * sine);
  output[first + half] = from_float<T>(b * cosine + a * sine);
}

template <class T>
__global__ void embedding_forward_kernel(const EmbeddingForward op) {
  wait_for_earlier_kernels();
  constexpr int kPack = 16 / sizeof(T);
  const int64_t packs = op.columns / kPack;
  const int64_t place = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (place >= op.batch * op.positions * packs) return;
  const int64_t row = place / packs;
  const int64_t pack = place % packs;
  const int64_t token = op.tokens[row];
  float x[kPack];
  if (token >= 0 && token < op.table_rows) {
    load<T>(x, op.token_table, token * packs + pack);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = NAN;
  }
  if (op.position_table != nullptr) {
    float position[kPack];
    load<T>(position, op.position_table, row % op.positions * packs + pack);
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] += position[i];
  }
  store<T>(op.output, place, x);
}

// A thread takes one pack of columns of one position through the whole batch.
template <class T>
__global__ void embedding_backward_kernel(const EmbeddingBackward op) {
  wait_for_earlier_kernels();
  constexpr int kPack = 16 / sizeof(T);
  const int64_t packs = op.columns / kPack;
  const int64_t place = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (place >= op.positions * packs) return;
  const int64_t position = place / packs;
  const int64_t pack = place % packs;
  float sum[kPack] = {};
  for (int64_t item = 0; item < op.batch; ++item) {
    const int64_t row = item * op.positions + position;
    float grad[kPack];
    load<T>(grad, op.grad_output, row * packs + pack);
    const int64_t token = op.tokens[row];
    if (op.grad_token_table != nullptr && token >= 0 && token < op.table_rows) {
      auto* out =
          reinterpret_cast<float4*>(op.grad_token_table + token * op.columns + pack * kPack);
#pragma unroll
      for (int i = 0; i < kPack / 4; ++i) {
        atomicAdd(out + i,
                  make_float4(grad[4 * i], grad[4 * i + 1], grad[4 * i + 2], grad[4 * i + 3]));
      }
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum[i] += grad[i];
  }
  if (op.grad_position_table == nullptr) return;
  float* out = op.grad_position_table + position * op.columns + pack * kPack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) out[i] += sum[i];
}

}  // namespace

void swiglu(const SwiGluLaunch& op, Kind kind, cudaStream_t stream) {
  with_type(kind, [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    constexpr int kPack = 16 / sizeof(T);
    if (op.columns % kPack == 0) {
      const int blocks = divide_up(op.rows * (op.columns / kPack), kThreads);
      launch(swiglu_kernel<T, kPack>, blocks, kThreads, 0, stream, op);
    } else {
      launch(swiglu_kernel<T, 1>, divide_up(op.rows * op.columns, kThreads), kThreads, 0, stream,
             op);
    }
  });
}

void rotary(const RotaryLaunch& op, Kind kind, cudaStream_t stream) {
  const int blocks = divide_up(op.outer * op.positions * op.heads * (op.width / 2), kThreads);
  with_type(kind, [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    launch(rotary_kernel<T>, blocks, kThreads, 0, stream, op);
  });
}

void embedding_forward(const EmbeddingForward& op, Kind kind, cudaStream_t stream) {
  with_type(kind, [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    const int64_t packs = op.columns / static_cast<int64_t>(16 / sizeof(T));
    const int blocks = divide_up(op.batch * op.positions * packs, kThreads);
    launch(embedding_forward_kernel<T>, blocks, kThreads, 0, stream, op);
  });
}

void embedding_backward(const EmbeddingBackward& op, Kind kind, cudaStream_t stream) {
  with_type(kind, [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    const int64_t packs = op.columns / static_cast<int64_t>(16 / sizeof(T));
    const int blocks = divide_up(op.positions * packs, kThreads);
    launch(embedding_backward_kernel<T>, blocks, kThreads, 0, stream, op);
  });
}

}  // namespace accelerate::cuda
