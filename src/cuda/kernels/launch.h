// The kernels of the library as functions on raw device memory. No libtorch here: these files are
// what nvcc compiles. All calls queue on `stream` and return at once; all pointers are device
// memory, rows are dense, and pointers of rows are aligned to 16 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace accelerate::cuda {

// The element types that kernels take.
enum class Kind { kFloat, kHalf, kBfloat16 };

// How many elements one 16-byte access moves.
constexpr int elements_per_access(Kind kind) { return kind == Kind::kFloat ? 4 : 8; }

// Sums over the rows of a matrix leave a kernel as `blocks` rows of partial sums and are put
// together by sum_partials().
inline constexpr int kMostSums = 3;
struct PartialSums {
  const float* partials = nullptr;  // [blocks, sums, columns]
  int blocks = 0;
  int sums = 0;
  int columns = 0;
  // Where each of the sums goes; null leaves it out. With `add` it is added to what is there.
  void* out[kMostSums] = {};
  Kind kind[kMostSums] = {};
  bool add[kMostSums] = {};
};
void sum_partials(const PartialSums& sums, cudaStream_t stream);

// Layer norm and RMS norm of residual + branch + branch_bias, where null parts count as zero.
struct NormForward {
  const void* residual = nullptr;
  const void* branch = nullptr;
  const void* branch_bias = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;  // null: none
  void* sum = nullptr;         // what was normalised; null: not kept
  void* output = nullptr;
  float* mean = nullptr;  // null: RMS norm
  float* rstd = nullptr;
  int64_t rows = 0;
  int columns = 0;
  float eps = 0;
};
void norm_forward(const NormForward& norm, Kind values, Kind weights, cudaStream_t stream);

// Its gradient. Leaves partial sums of the gradients of weight, bias and branch_bias, in this
// order, in `partials`: [norm_backward_blocks(), 3, columns].
struct NormBackward {
  const void* grad_output = nullptr;
  const void* grad_sum = nullptr;  // that of `sum` from elsewhere; null: none
  const void* sum = nullptr;
  const void* weight = nullptr;
  const float* mean = nullptr;  // null: RMS norm
  const float* rstd = nullptr;
  void* grad_input = nullptr;
  float* partials = nullptr;
  int64_t rows = 0;
  int columns = 0;
};
int norm_backward_blocks(int64_t rows);
void norm_backward(const NormBackward& norm, Kind values, Kind weights, cudaStream_t stream);

enum class Activation { kGeluTanh, kGeluErf };

// activation(input + bias) and its gradient, with partial sums of the gradient of the bias in
// `partials`: [row_blocks(), 1, columns].
struct BiasActivation {
  const void* input = nullptr;
  const void* bias = nullptr;         // null: none
  const void* grad_output = nullptr;  // null: forward
  void* output = nullptr;
  float* partials = nullptr;  // null: not wanted
  int64_t rows = 0;
  int columns = 0;
};
int row_blocks(int64_t rows, int columns, Kind kind);
void bias_activation(const BiasActivation& op, Activation activation, Kind values, Kind weights,
                     cudaStream_t stream);

// Puts up to three matrices of equal width side by side and leaves partial sums over their rows:
// [row_blocks(rows, parts * columns), 1, parts * columns].
struct Concatenation {
  const void* part[3] = {};
  int parts = 0;
  void* output = nullptr;     // null: only the sums are wanted
  float* partials = nullptr;  // null: only the matrix is wanted
  int64_t rows = 0;
  int columns = 0;  // of one part
};
void concatenate(const Concatenation& op, Kind kind, cudaStream_t stream);

// silu(gate) * up of rows that hold gate and then up, and the gradient of such rows.
struct SwiGluLaunch {
  const void* input = nullptr;        // [rows, 2 columns]
  const void* grad_output = nullptr;  // [rows, columns]; null: forward
  void* output = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
};
void swiglu(const SwiGluLaunch& op, Kind kind, cudaStream_t stream);

// Rotates the halves of each head: input [outer, positions, heads, width].
struct RotaryLaunch {
  const void* input = nullptr;
  const float* cosine = nullptr;  // [positions, width / 2]
  const float* sine = nullptr;
  void* output = nullptr;
  int64_t outer = 0;
  int64_t positions = 0;
  int64_t heads = 0;
  int64_t width = 0;
  bool backwards = false;
};
void rotary(const RotaryLaunch& op, Kind kind, cudaStream_t stream);

// Cross entropy of rows of logits, which are overwritten by their gradient (of the sum of losses).
struct CrossEntropy {
  void* logits = nullptr;
  const int64_t* target = nullptr;
  // Of each row; 0 where the target is ignore_index, no number where it is no column, as is then
  // the gradient of the row.
  float* loss = nullptr;
  int64_t rows = 0;
  int columns = 0;
  int64_t ignore_index = 0;
  float label_smoothing = 0;
  float z_loss = 0;
  bool write_gradient = true;
};
void cross_entropy(const CrossEntropy& op, Kind kind, cudaStream_t stream);

// token_table[token] + position_table[position], and the gradients, which are added to float32. A
// token that is not in the table makes its row no number and has no gradient.
struct EmbeddingForward {
  const int64_t* tokens = nullptr;  // [batch, positions]
  const void* token_table = nullptr;
  int64_t table_rows = 0;                // of token_table
  const void* position_table = nullptr;  // null: none
  void* output = nullptr;
  int64_t batch = 0;
  int64_t positions = 0;
  int columns = 0;
};
void embedding_forward(const EmbeddingForward& op, Kind kind, cudaStream_t stream);
struct EmbeddingBackward {
  const int64_t* tokens = nullptr;
  const void* grad_output = nullptr;
  float* grad_token_table = nullptr;     // null: not wanted
  int64_t table_rows = 0;                // of grad_token_table
  float* grad_position_table = nullptr;  // null: not wanted
  int64_t batch = 0;
  int64_t positions = 0;
  int columns = 0;
};
void embedding_backward(const EmbeddingBackward& op, Kind kind, cudaStream_t stream);

// to = from * scale, or to += from * scale, in float32 arithmetic.
struct Scaled {
  const void* from = nullptr;
  void* to = nullptr;
  const float* scale = nullptr;  // one number
  int64_t numel = 0;
  bool add = false;
};
void scaled(const Scaled& op, Kind from, Kind to, cudaStream_t stream);

// The norm of a flat float32 vector, in two steps without atomics. `partials` holds
// kNormPartials floats.
inline constexpr int kNormPartials = 1024;
void flat_norm(const float* values, int64_t numel, float* partials, float* norm,
               cudaStream_t stream);

// One update by AdamW of a flat vector, all scalars on the device.
struct FlatAdamWLaunch {
  float* master = nullptr;  // null: the parameters are their own masters
  void* parameters = nullptr;
  const float* gradient = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  int64_t numel = 0;
  int64_t decayed_numel = 0;  // weight decay is for the first of them
  const float* learning_rate = nullptr;
  const float* step = nullptr;       // number of this update, from 1
  const float* norm = nullptr;       // with max_norm: the gradient's; null: no clipping
  const float* found_inf = nullptr;  // not zero: nothing is updated; null: always updated
  float max_norm = 0;
  float beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool stochastic_rounding = false;
  uint64_t seed = 0;
};
void flat_adamw(const FlatAdamWLaunch& op, Kind kind, cudaStream_t stream);

}  // namespace accelerate::cuda
