// Fused operations for models: each does in one or two passes over memory what several operators of
// libtorch do in many, and each has a gradient.
//
// They take float32, bfloat16 and float16 (float64 too, for checks) on any device. On CUDA they use
// kernels of this library where these fit (widths that 16-byte accesses divide, up to 8,192
// elements, 4,096 of float32), elsewhere operators of libtorch: the results are the same but for
// rounding. Sums are kept in float32. Weights of norms and the bias of gelu() have the dtype of the
// values or are float32, other weights have that of the values. Under autocast the matrix products
// run in its dtype. Nothing waits for the device.
//
// Shapes that do not match and tensors on different devices are refused with UsageError or by
// libtorch, before anything is launched. Only linear() has second-order gradients;
// where another operation has kernels, and by linear_cross_entropy() everywhere, they throw.
//
// Where a leaf in half precision has a dense gradient in float32 (FlatOptions makes them so),
// the backward pass adds to it directly and hands nothing to autograd: hooks on such leaves are not
// called, and torch::autograd::grad() must not be asked for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "accelerate/export.h"

namespace accelerate::ops {

// How the matrix of a linear layer lies in memory: [outputs, inputs] as in torch::nn::Linear, or
// [inputs, outputs] as GPT-2's checkpoints have it. Neither is copied to become the other.
enum class WeightLayout { kOutputsFirst, kInputsFirst };

// x W^T + bias, as torch::linear, where W is [outputs, inputs]; `bias` may be undefined.
ACCELERATE_EXPORT at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                                    const at::Tensor& bias = {},
                                    WeightLayout layout = WeightLayout::kOutputsFirst);

struct LinearCrossEntropyOptions {
  // Rows with this target are ignored.
  int64_t ignore_index = -100;
  double label_smoothing = 0.0;
  // Adds z_loss * logsumexp(logits)^2 to the loss of each row, which keeps logits small.
  double z_loss = 0.0;
  // How many rows of logits exist at a time; 0 chooses so that they take at most 1 GiB.
  int64_t chunk_rows = 0;
};

// The mean over all rows that are not ignored of cross_entropy(input weight^T, target), in float32;
// NaN if there is none, with gradients of zero, as with torch. input [..., features], weight
// [classes, features], target [...] of int64. A target that is neither a class nor ignored makes
// the loss and the gradient of its row NaN on CUDA; on CPUs libtorch throws.
//
// Logits are made a chunk of rows at a time and overwritten by their gradient, so they are never
// stored twice nor all at once; the gradients are computed with the loss, and backward() only
// scales them.
ACCELERATE_EXPORT at::Tensor linear_cross_entropy(const at::Tensor& input, const at::Tensor& weight,
                                                  const at::Tensor& target,
                                                  const LinearCrossEntropyOptions& options = {});

// Norms over the last dimension; `bias` may be undefined.
ACCELERATE_EXPORT at::Tensor layer_norm(const at::Tensor& input, const at::Tensor& weight,
                                        const at::Tensor& bias, double eps = 1e-5);
ACCELERATE_EXPORT at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight,
                                      double eps = 1e-6);

// The step between two branches of a residual network: sum = residual + branch + branch_bias,
// normed = norm(sum); returns {sum, normed}. `branch_bias` is the bias of the linear layer that
// made the branch, left out there: here it costs nothing, forwards or backwards. It may be
// undefined. weight, bias and branch_bias are vectors of the last dimension.
ACCELERATE_EXPORT std::tuple<at::Tensor, at::Tensor> residual_layer_norm(
    const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& weight,
    const at::Tensor& bias, double eps = 1e-5, const at::Tensor& branch_bias = {});
ACCELERATE_EXPORT std::tuple<at::Tensor, at::Tensor> residual_rms_norm(
    const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& weight,
    double eps = 1e-6, const at::Tensor& branch_bias = {});

enum class Gelu { kTanh, kErf };

// gelu(input + bias); `bias` may be undefined. Give it the bias of the linear layer before.
ACCELERATE_EXPORT at::Tensor gelu(const at::Tensor& input, const at::Tensor& bias = {},
                                  Gelu kind = Gelu::kTanh);

// silu(gate) * up, where the last dimension of `input` holds the gate and then, as wide, the rest.
ACCELERATE_EXPORT at::Tensor swiglu(const at::Tensor& input);

// silu(input gate_weight^T) * (input up_weight^T): swiglu() of two linear layers without bias,
// whose weights are [inner, features] each, without a copy of either. input [..., features] gives
// [..., inner].
ACCELERATE_EXPORT at::Tensor linear_swiglu(const at::Tensor& input, const at::Tensor& gate_weight,
                                           const at::Tensor& up_weight);

// Rotary position embedding of input [..., positions, heads, width]: the halves of each head are
// rotated by the angle of their position. cosine and sine are float32 [positions, width / 2].
ACCELERATE_EXPORT at::Tensor rotary_embedding(const at::Tensor& input, const at::Tensor& cosine,
                                              const at::Tensor& sine);
// {cosine, sine} for it, on the CPU.
ACCELERATE_EXPORT std::tuple<at::Tensor, at::Tensor> rotary_angles(int64_t positions, int64_t width,
                                                                   double base = 10000.0);

struct AttentionOptions {
  bool causal = true;
  double dropout = 0.0;
  // 0: one over the square root of the width of a head.
  double scale = 0.0;
};

// Attention of query, key and value [batch, positions, heads, width]; the result has that shape.
// On Hopper GPUs and later it uses cuDNN for 16-bit values; throws UsageError if libtorch would
// silently use a slower implementation for all of them (another cuDNN was loaded than it was built
// with). Attention that cuDNN itself does not support, and all of it while deterministic algorithms
// are asked for, is left to libtorch's choice.
ACCELERATE_EXPORT at::Tensor attention(const at::Tensor& query, const at::Tensor& key,
                                       const at::Tensor& value,
                                       const AttentionOptions& options = {});

// attention() of the three parts of linear(input, weight, bias, layout), each of which has `heads`
// heads: input [batch, positions, features], weight for 3 inner outputs, bias [3 inner] or
// undefined. Returns [batch, positions, inner].
ACCELERATE_EXPORT at::Tensor self_attention(const at::Tensor& input, const at::Tensor& weight,
                                            const at::Tensor& bias, int64_t heads,
                                            const AttentionOptions& options = {},
                                            WeightLayout layout = WeightLayout::kOutputsFirst);

// token_table[tokens], plus position_table[position] if that is defined: tokens [..., positions] of
// int64 gives [..., positions, features]. The order in which gradients of a token are added differs
// from run to run on CUDA, unless deterministic algorithms are asked for. A token that is not in
// the table makes its row NaN on CUDA; on CPUs libtorch throws.
ACCELERATE_EXPORT at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& token_table,
                                       const at::Tensor& position_table = {});

}  // namespace accelerate::ops
