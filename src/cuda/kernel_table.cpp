#include "cuda/kernel_table.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>

#include "cuda/kernels/launch.h"
#include "cuda/products.h"

namespace accelerate::cuda {
namespace {

using device::ColumnSum;

Kind kind_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return Kind::kHalf;
    case at::kBFloat16:
      return Kind::kBfloat16;
    default:
      return Kind::kFloat;
  }
}
Kind kind_of(const at::Tensor& tensor) { return kind_of(tensor.scalar_type()); }

void* data(const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }
float* floats(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}
cudaStream_t stream() { return at::cuda::getCurrentCUDAStream().stream(); }
void check_launch() { C10_CUDA_KERNEL_LAUNCH_CHECK(); }

int columns_of(const at::Tensor& tensor) { return static_cast<int>(tensor.size(-1)); }
int64_t rows_of(const at::Tensor& tensor) { return tensor.numel() / tensor.size(-1); }
at::Tensor new_floats(const at::Tensor& like, at::IntArrayRef sizes) {
  return at::empty(sizes, like.options().dtype(at::kFloat));
}

bool fits_rows(const at::Tensor& tensor, at::ScalarType weights) {
  const at::ScalarType type = tensor.scalar_type();
  if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16) return false;
  if (weights != type && weights != at::kFloat) return false;
  if (tensor.dim() == 0 || tensor.numel() == 0 || !tensor.is_contiguous()) return false;
  const int pack = elements_per_access(kind_of(type));
  const int64_t columns = tensor.size(-1);
  return columns % pack == 0 && columns / pack <= 1024 && rows_of(tensor) < (int64_t{1} << 31) &&
         reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 16 == 0;
}

// Adds one output to `sums` and returns the tensor that it fills, or nothing if it is added to one
// that is there.
at::Tensor direct_sum(PartialSums& sums, int which, const ColumnSum& sum, const at::Tensor& like) {
  if (!sum.wanted) return {};
  const bool add = sum.add_to.defined();
  const at::Tensor out =
      add ? sum.add_to : at::empty({sums.columns}, like.options().dtype(sum.dtype));
  sums.out[which] = out.data_ptr();
  sums.kind[which] = kind_of(out);
  sums.add[which] = add;
  return add ? at::Tensor() : out;
}

device::NormForwardResult norm_forward(const at::Tensor& residual, const at::Tensor& branch,
                                       const at::Tensor& branch_bias, const at::Tensor& weight,
                                       const at::Tensor& bias, double eps, bool rms) {
  const c10::cuda::CUDAGuard device(branch.device());
  device::NormForwardResult result;
  const int64_t rows = rows_of(branch);
  if (residual.defined() || branch_bias.defined()) result.sum = at::empty_like(branch);
  result.output = at::empty_like(branch);
  if (!rms) result.mean = new_floats(branch, {rows});
  result.rstd = new_floats(branch, {rows});
  cuda::norm_forward({.residual = data(residual),
                      .branch = data(branch),
                      .branch_bias = data(branch_bias),
                      .weight = data(weight),
                      .bias = data(bias),
                      .sum = data(result.sum),
                      .output = data(result.output),
                      .mean = floats(result.mean),
                      .rstd = floats(result.rstd),
                      .rows = rows,
                      .columns = columns_of(branch),
                      .eps = static_cast<float>(eps)},
                     kind_of(branch), kind_of(weight), stream());
  check_launch();
  return result;
}

std::array<at::Tensor, 4> norm_backward(const at::Tensor& grad_output, const at::Tensor& grad_sum,
                                        const at::Tensor& sum, const at::Tensor& weight,
                                        const at::Tensor& mean, const at::Tensor& rstd,
                                        const std::array<ColumnSum, 3>& wanted) {
  const c10::cuda::CUDAGuard device(sum.device());
  const int64_t rows = rows_of(sum);
  const int columns = columns_of(sum);
  const int blocks = norm_backward_blocks(rows);
  std::array<at::Tensor, 4> result{at::empty_like(sum)};
  const bool sums_wanted = wanted[0].wanted || wanted[1].wanted || wanted[2].wanted;
  const at::Tensor partials =
      sums_wanted ? new_floats(sum, {blocks, kMostSums, columns}) : at::Tensor();
  cuda::norm_backward({.grad_output = data(grad_output),
                       .grad_sum = data(grad_sum),
                       .sum = data(sum),
                       .weight = data(weight),
                       .mean = floats(mean),
                       .rstd = floats(rstd),
                       .grad_input = data(result[0]),
                       .partials = floats(partials),
                       .rows = rows,
                       .columns = columns},
                      kind_of(sum), kind_of(weight), stream());
  check_launch();
  if (!sums_wanted) return result;
  PartialSums sums{
      .partials = floats(partials), .blocks = blocks, .sums = kMostSums, .columns = columns};
  for (int which = 0; which < kMostSums; ++which) {
    const auto place = static_cast<size_t>(which);
    result[place + 1] = direct_sum(sums, which, wanted[place], sum);
  }
  sum_partials(sums, stream());
  check_launch();
  return result;
}

Activation activation_of(bool tanh) { return tanh ? Activation::kGeluTanh : Activation::kGeluErf; }
Kind weights_of(const at::Tensor& bias, const at::Tensor& values) {
  return bias.defined() ? kind_of(bias) : kind_of(values);
}

at::Tensor gelu_forward(const at::Tensor& input, const at::Tensor& bias, bool tanh) {
  const c10::cuda::CUDAGuard device(input.device());
  at::Tensor output = at::empty_like(input);
  bias_activation({.input = data(input),
                   .bias = data(bias),
                   .output = data(output),
                   .rows = rows_of(input),
                   .columns = columns_of(input)},
                  activation_of(tanh), kind_of(input), weights_of(bias, input), stream());
  check_launch();
  return output;
}

// Finishes sums over the rows of one matrix.
at::Tensor finish_sum(const at::Tensor& partials, const ColumnSum& wanted) {
  PartialSums sums{.partials = floats(partials),
                   .blocks = static_cast<int>(partials.size(0)),
                   .sums = 1,
                   .columns = static_cast<int>(partials.size(1))};
  at::Tensor out = direct_sum(sums, 0, wanted, partials);
  sum_partials(sums, stream());
  check_launch();
  return out;
}

std::array<at::Tensor, 2> gelu_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                        const at::Tensor& bias, bool tanh, const ColumnSum& sum) {
  const c10::cuda::CUDAGuard device(input.device());
  const int64_t rows = rows_of(input);
  const int columns = columns_of(input);
  std::array<at::Tensor, 2> result{at::empty_like(input)};
  const at::Tensor partials =
      sum.wanted ? new_floats(input, {row_blocks(rows, columns, kind_of(input)), columns})
                 : at::Tensor();
  bias_activation({.input = data(input),
                   .bias = data(bias),
                   .grad_output = data(grad_output),
                   .output = data(result[0]),
                   .partials = floats(partials),
                   .rows = rows,
                   .columns = columns},
                  activation_of(tanh), kind_of(input), weights_of(bias, input), stream());
  check_launch();
  if (sum.wanted) result[1] = finish_sum(partials, sum);
  return result;
}

std::array<at::Tensor, 2> concatenate(const std::vector<at::Tensor>& parts, bool matrix,
                                      const ColumnSum& sum) {
  const at::Tensor& first = parts.at(0);
  const c10::cuda::CUDAGuard device(first.device());
  const int64_t rows = rows_of(first);
  const int columns = columns_of(first);
  const int total = columns * static_cast<int>(parts.size());
  std::array<at::Tensor, 2> result;
  if (matrix) {
    auto sizes = first.sizes().vec();
    sizes.back() = total;
    result[0] = at::empty(sizes, first.options());
  }
  const at::Tensor partials =
      sum.wanted ? new_floats(first, {row_blocks(rows, total, kind_of(first)), total})
                 : at::Tensor();
  Concatenation op{.parts = static_cast<int>(parts.size()),
                   .output = data(result[0]),
                   .partials = floats(partials),
                   .rows = rows,
                   .columns = columns};
  for (size_t i = 0; i < parts.size(); ++i) op.part[i] = data(parts[i]);
  cuda::concatenate(op, kind_of(first), stream());
  check_launch();
  if (sum.wanted) result[1] = finish_sum(partials, sum);
  return result;
}

at::Tensor swiglu_forward(const at::Tensor& input) {
  const c10::cuda::CUDAGuard device(input.device());
  auto sizes = input.sizes().vec();
  sizes.back() /= 2;
  at::Tensor output = at::empty(sizes, input.options());
  swiglu({.input = data(input),
          .output = data(output),
          .rows = rows_of(output),
          .columns = output.size(-1)},
         kind_of(input), stream());
  check_launch();
  return output;
}

at::Tensor swiglu_backward(const at::Tensor& grad_output, const at::Tensor& input) {
  const c10::cuda::CUDAGuard device(input.device());
  at::Tensor output = at::empty_like(input);
  swiglu({.input = data(input),
          .grad_output = data(grad_output),
          .output = data(output),
          .rows = rows_of(grad_output),
          .columns = grad_output.size(-1)},
         kind_of(input), stream());
  check_launch();
  return output;
}

at::Tensor rotate(const at::Tensor& input, const at::Tensor& cosine, const at::Tensor& sine,
                  bool backwards) {
  const c10::cuda::CUDAGuard device(input.device());
  at::Tensor output = at::empty_like(input);
  const int64_t positions = input.size(-3);
  const int64_t heads = input.size(-2);
  const int64_t width = input.size(-1);
  rotary({.input = data(input),
          .cosine = floats(cosine),
          .sine = floats(sine),
          .output = data(output),
          .outer = input.numel() / (positions * heads * width),
          .positions = positions,
          .heads = heads,
          .width = width,
          .backwards = backwards},
         kind_of(input), stream());
  check_launch();
  return output;
}

void cross_entropy_rows(at::Tensor& logits, const at::Tensor& target, at::Tensor& loss,
                        int64_t ignore_index, double label_smoothing, double z_loss,
                        bool gradient) {
  const c10::cuda::CUDAGuard device(logits.device());
  cross_entropy({.logits = data(logits),
                 .target = target.data_ptr<int64_t>(),
                 .loss = floats(loss),
                 .rows = logits.size(0),
                 .columns = columns_of(logits),
                 .ignore_index = ignore_index,
                 .label_smoothing = static_cast<float>(label_smoothing),
                 .z_loss = static_cast<float>(z_loss),
                 .write_gradient = gradient},
                kind_of(logits), stream());
  check_launch();
}

at::Tensor embed(const at::Tensor& tokens, const at::Tensor& token_table,
                 const at::Tensor& position_table) {
  const c10::cuda::CUDAGuard device(tokens.device());
  const int64_t positions = tokens.size(-1);
  const int64_t batch = tokens.numel() / positions;
  auto sizes = tokens.sizes().vec();
  sizes.push_back(token_table.size(1));
  at::Tensor output = at::empty(sizes, token_table.options());
  embedding_forward({.tokens = tokens.data_ptr<int64_t>(),
                     .token_table = data(token_table),
                     .table_rows = token_table.size(0),
                     .position_table = data(position_table),
                     .output = data(output),
                     .batch = batch,
                     .positions = positions,
                     .columns = columns_of(token_table)},
                    kind_of(token_table), stream());
  check_launch();
  return output;
}

void add_embedding_gradients(const at::Tensor& grad_output, const at::Tensor& tokens,
                             const at::Tensor& grad_token_table,
                             const at::Tensor& grad_position_table) {
  const c10::cuda::CUDAGuard device(tokens.device());
  const int64_t positions = tokens.size(-1);
  embedding_backward({.tokens = tokens.data_ptr<int64_t>(),
                      .grad_output = data(grad_output),
                      .grad_token_table = floats(grad_token_table),
                      .table_rows = grad_token_table.defined() ? grad_token_table.size(0) : 0,
                      .grad_position_table = floats(grad_position_table),
                      .batch = tokens.numel() / positions,
                      .positions = positions,
                      .columns = columns_of(grad_output)},
                     kind_of(grad_output), stream());
  check_launch();
}

void scale_into(const at::Tensor& to, const at::Tensor& from, const at::Tensor& scale, bool add) {
  const c10::cuda::CUDAGuard device(to.device());
  scaled(
      {.from = data(from), .to = data(to), .scale = floats(scale), .numel = to.numel(), .add = add},
      kind_of(from), kind_of(to), stream());
  check_launch();
}

at::Tensor norm_of_flat(const at::Tensor& values) {
  const c10::cuda::CUDAGuard device(values.device());
  const at::Tensor partials = new_floats(values, {kNormPartials});
  at::Tensor norm = new_floats(values, {});
  flat_norm(floats(values), values.numel(), floats(partials), floats(norm), stream());
  check_launch();
  return norm;
}

void update_flat(const device::FlatAdamWArguments& from) {
  const c10::cuda::CUDAGuard device(from.parameters.device());
  flat_adamw({.master = floats(from.master),
              .parameters = data(from.parameters),
              .gradient = floats(from.gradient),
              .exp_avg = floats(from.exp_avg),
              .exp_avg_sq = floats(from.exp_avg_sq),
              .numel = from.parameters.numel(),
              .decayed_numel = from.decayed_numel,
              .learning_rate = floats(from.learning_rate),
              .step = floats(from.step),
              .norm = floats(from.norm),
              .found_inf = floats(from.found_inf),
              .max_norm = static_cast<float>(from.max_norm),
              .beta1 = static_cast<float>(from.beta1),
              .beta2 = static_cast<float>(from.beta2),
              .eps = static_cast<float>(from.eps),
              .weight_decay = static_cast<float>(from.weight_decay),
              .stochastic_rounding = from.stochastic_rounding,
              .seed = from.seed},
             kind_of(from.parameters), stream());
  check_launch();
}

}  // namespace

const device::CudaKernels* kernel_table() {
  static constexpr device::CudaKernels kTable = {
      .fits_rows = fits_rows,
      .norm_forward = norm_forward,
      .norm_backward = norm_backward,
      .gelu_forward = gelu_forward,
      .gelu_backward = gelu_backward,
      .concatenate = concatenate,
      .swiglu_forward = swiglu_forward,
      .swiglu_backward = swiglu_backward,
      .rotary = rotate,
      .cross_entropy = cross_entropy_rows,
      .embedding_forward = embed,
      .embedding_backward = add_embedding_gradients,
      .measured_product = measured_product,
      .scale = scale_into,
      .flat_norm = norm_of_flat,
      .flat_adamw = update_flat,
  };
  return &kTable;
}

}  // namespace accelerate::cuda
