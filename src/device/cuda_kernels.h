// The fused kernels of libaccelerate_cuda.so as functions on tensors. Part of the table that
// cuda_plugin.h opens; null there where the library was built without nvcc.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

namespace accelerate::device {

// Where the sum over rows that belongs to a parameter goes: added to `add_to` if that is defined,
// else into a new tensor of dtype `dtype`. `wanted` false: nowhere.
struct ColumnSum {
  bool wanted = false;
  at::ScalarType dtype = at::kFloat;
  at::Tensor add_to{};
};

struct NormForwardResult {
  at::Tensor sum;  // residual + branch + branch_bias; undefined where it is the branch itself
  at::Tensor output;
  at::Tensor mean;  // undefined for RMS norm
  at::Tensor rstd;
};

struct FlatAdamWArguments {
  // Undefined: the parameters are their own masters. Where a parameter does not have the bits of
  // its rounded master, something has written to it, and it is updated from there.
  at::Tensor master{};
  at::Tensor parameters{};
  at::Tensor gradient{};
  at::Tensor exp_avg{};
  at::Tensor exp_avg_sq{};
  int64_t decayed_numel = 0;
  at::Tensor learning_rate{};  // float32 scalars on the device, as are all tensors below
  at::Tensor step{};
  at::Tensor norm{};       // undefined: no clipping
  at::Tensor found_inf{};  // undefined: always updated
  double max_norm = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool stochastic_rounding = false;
  uint64_t seed = 0;
};

// All tensors are contiguous and on one CUDA device; all calls queue on the current stream. What
// `fits_rows` refuses must not be given to the others.
struct CudaKernels {
  // Whether rows of `tensor` and weights of dtype `weights` are what the row kernels take: 16 or
  // 32-bit floats, aligned, of a width that 16-byte accesses divide and one block can hold.
  bool (*fits_rows)(const at::Tensor& tensor, at::ScalarType weights);

  NormForwardResult (*norm_forward)(const at::Tensor& residual, const at::Tensor& branch,
                                    const at::Tensor& branch_bias, const at::Tensor& weight,
                                    const at::Tensor& bias, double eps, bool rms);
  // Returns the gradient of the sum and those of weight, bias and branch_bias.
  std::array<at::Tensor, 4> (*norm_backward)(const at::Tensor& grad_output,
                                             const at::Tensor& grad_sum, const at::Tensor& sum,
                                             const at::Tensor& weight, const at::Tensor& mean,
                                             const at::Tensor& rstd,
                                             const std::array<ColumnSum, 3>& sums);

  at::Tensor (*gelu_forward)(const at::Tensor& input, const at::Tensor& bias, bool tanh);
  // Returns the gradients of input and bias.
  std::array<at::Tensor, 2> (*gelu_backward)(const at::Tensor& grad_output, const at::Tensor& input,
                                             const at::Tensor& bias, bool tanh,
                                             const ColumnSum& sum);

  // Up to three matrices of equal shape side by side, and the sums over their rows. `matrix` false:
  // the sums alone.
  std::array<at::Tensor, 2> (*concatenate)(const std::vector<at::Tensor>& parts, bool matrix,
                                           const ColumnSum& sum);

  at::Tensor (*swiglu_forward)(const at::Tensor& input);
  at::Tensor (*swiglu_backward)(const at::Tensor& grad_output, const at::Tensor& input);
  at::Tensor (*rotary)(const at::Tensor& input, const at::Tensor& cosine, const at::Tensor& sine,
                       bool backwards);

  // Overwrites `logits` by the gradient of the sum of losses, unless `gradient` is false; writes
  // the loss of each row into `loss`.
  void (*cross_entropy)(at::Tensor& logits, const at::Tensor& target, at::Tensor& loss,
                        int64_t ignore_index, double label_smoothing, double z_loss, bool gradient);

  at::Tensor (*embedding_forward)(const at::Tensor& tokens, const at::Tensor& token_table,
                                  const at::Tensor& position_table);
  // Adds to float32 tables; undefined ones are left out.
  void (*embedding_backward)(const at::Tensor& grad_output, const at::Tensor& tokens,
                             const at::Tensor& grad_token_table,
                             const at::Tensor& grad_position_table);

  // to = left right + bias, or to += left right, in the way that was measured to be the fastest;
  // false where it is not for these matrices. The first call for a shape waits for the device.
  bool (*measured_product)(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right,
                           const at::Tensor& bias, bool add);

  // to = from * scale, or to += from * scale, where `scale` is a float32 scalar on the device.
  void (*scale)(const at::Tensor& to, const at::Tensor& from, const at::Tensor& scale, bool add);
  // The norm of a flat float32 vector, as a scalar on the device.
  at::Tensor (*flat_norm)(const at::Tensor& values);
  void (*flat_adamw)(const FlatAdamWArguments& arguments);
};

// The kernels for the device of `tensor`; null on CPUs, where the library was built without nvcc,
// and for GPUs that are older than those it was built for: operators of libtorch do the work then.
const CudaKernels* kernels_for(const at::Tensor& tensor);

// Whether cuDNN's attention is the fastest on the device of `tensor`: on GPUs from Hopper on.
bool prefers_cudnn_attention(const at::Tensor& tensor);

}  // namespace accelerate::device
