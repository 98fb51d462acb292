#include <ATen/ATen.h>
#include <torch/autograd.h>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "ops/first_order_function.h"
#include "ops/gradients.h"

namespace accelerate::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::optional<double> scale_of(const AttentionOptions& options) {
  return options.scale == 0.0 ? std::nullopt : std::optional<double>(options.scale);
}

bool is_half_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

// What at::_fused_sdp_choice returns for cuDNN.
constexpr int64_t kCudnnChoice = 3;

// All are [batch, heads, positions, width].
bool chooses_cudnn(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   const AttentionOptions& options) {
  return at::_fused_sdp_choice(query, key, value, std::nullopt, options.dropout, options.causal,
                               scale_of(options)) == kCudnnChoice;
}

// Whether libtorch gives cuDNN an attention that it surely takes, beside `like`.
bool cudnn_is_used(const at::Tensor& like) {
  const at::Tensor part = at::empty({1, 1, 128, 64}, like.options());
  return chooses_cudnn(part, part, part, {});
}

// Whether cuDNN computes this attention. Throws UsageError where libtorch does not use cuDNN at all
// though the GPU is one for it. What cuDNN does not take, and that alone, is left to libtorch.
bool runs_by_cudnn(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   const AttentionOptions& options) {
  if (!is_half_precision(query) || !device::prefers_cudnn_attention(query)) return false;
  const bool usual =
      query.size(3) % 8 == 0 && query.size(3) <= 128 && query.size(2) > 1 && query.numel() > 0;
  if (!usual) return false;
  if (chooses_cudnn(query, key, value, options)) return true;
  // cuDNN's backward pass is not deterministic: libtorch is right to refuse it.
  if (at::globalContext().deterministicAlgorithms() || cudnn_is_used(query)) return false;
  throw UsageError({.what = "attention on this GPU should use cuDNN, but libtorch chose another "
                            "backend",
                    .where = "ops::attention",
                    .hint = "let the cuDNN that libtorch was built with come first in the library "
                            "path, and leave cuDNN attention enabled"});
}

struct CudnnAttention {
  at::Tensor output, log_sums, cum_query, cum_key, seed, offset;
  int64_t most_query = 0, most_key = 0;
};

CudnnAttention run_cudnn(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const AttentionOptions& options) {
  auto [output, log_sums, cum_query, cum_key, most_query, most_key, seed, offset, debug] =
      at::_scaled_dot_product_cudnn_attention(query, key, value, std::nullopt, true,
                                              options.dropout, options.causal, false,
                                              scale_of(options));
  return {.output = output,
          .log_sums = log_sums,
          .cum_query = cum_query,
          .cum_key = cum_key,
          .seed = seed,
          .offset = offset,
          .most_query = most_query.expect_int(),
          .most_key = most_key.expect_int()};
}

// The parts of [batch, positions, 3 inner] as [batch, heads, positions, width].
std::array<at::Tensor, 3> parts_of(const at::Tensor& packed, int64_t heads) {
  const int64_t inner = packed.size(2) / 3;
  const at::Tensor split = packed.view({packed.size(0), packed.size(1), 3, heads, inner / heads});
  std::array<at::Tensor, 3> parts;
  for (int64_t i = 0; i < 3; ++i) {
    parts[static_cast<size_t>(i)] = split.select(2, i).transpose(1, 2);
  }
  return parts;
}

// Projection and attention as one node: backwards, the gradients of the three parts and the sum
// that is the gradient of the bias come from one pass.
struct SelfAttention : FirstOrderFunction<SelfAttention> {
  static constexpr const char* kName = "ops::self_attention";

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::optional<at::Tensor>& own_bias,
                            int64_t heads, bool causal, double dropout, double scale,
                            bool inputs_first) {
    const at::Tensor bias = own_bias.value_or(at::Tensor());
    const AttentionOptions options{.causal = causal, .dropout = dropout, .scale = scale};
    const at::Tensor rows = input.view({-1, input.size(2)});
    const int64_t outputs = weight.size(inputs_first ? 1 : 0);
    const at::Tensor packed = product(rows, inputs_first ? weight : weight.t(), bias)
                                  .view({input.size(0), input.size(1), outputs});
    const auto parts = parts_of(packed, heads);
    const CudnnAttention found = run_cudnn(parts[0], parts[1], parts[2], options);
    context->save_for_backward({input, weight, bias, packed, found.output, found.log_sums,
                                found.cum_query, found.cum_key, found.seed, found.offset});
    auto& data = context->saved_data;
    data["heads"] = heads;
    data["causal"] = causal;
    data["dropout"] = dropout;
    data["scale"] = scale;
    data["inputs_first"] = inputs_first;
    data["most_query"] = found.most_query;
    data["most_key"] = found.most_key;
    return found.output.transpose(1, 2).reshape({input.size(0), input.size(1), outputs / 3});
  }

  static variable_list gradients(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const auto layout =
        data["inputs_first"].toBool() ? WeightLayout::kInputsFirst : WeightLayout::kOutputsFirst;
    const int64_t heads = data["heads"].toInt();
    const AttentionOptions options{.causal = data["causal"].toBool(),
                                   .dropout = data["dropout"].toDouble(),
                                   .scale = data["scale"].toDouble()};
    const auto parts = parts_of(saved[3], heads);
    const int64_t width = parts[0].size(3);
    const at::Tensor grad_output =
        upstream[0].contiguous().view({input.size(0), input.size(1), heads, width}).transpose(1, 2);
    auto [query, key, value] = at::_scaled_dot_product_cudnn_attention_backward(
        grad_output, parts[0], parts[1], parts[2], saved[4], saved[5], saved[8], saved[9],
        at::Tensor(), saved[6], saved[7], data["most_query"].toInt(), data["most_key"].toInt(),
        options.dropout, options.causal, scale_of(options));
    std::vector<at::Tensor> found;
    for (const at::Tensor& part : {query, key, value}) {
      found.push_back(part.transpose(1, 2).reshape({-1, heads * width}));
    }
    const bool bias_wanted = saved[2].defined() && context->needs_input_grad(2);
    const auto [packed, bias_sum] = kernels_for(input)->concatenate(
        found, true, bias_wanted ? gradient_sum_of(saved[2]) : device::ColumnSum());
    variable_list result(8);
    if (context->needs_input_grad(0))
      result[0] = product(packed, outputs_first(weight, layout)).view(input.sizes());
    if (context->needs_input_grad(1)) {
      result[1] = weight_gradient(weight, input.view({-1, input.size(2)}), packed, layout);
    }
    result[2] = bias_sum;
    return result;
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionOptions& options) {
  const at::Tensor q = autocast_value(query).transpose(-3, -2);
  const at::Tensor k = autocast_value(key).transpose(-3, -2);
  const at::Tensor v = autocast_value(value).transpose(-3, -2);
  if (q.dim() == 4) (void)runs_by_cudnn(q, k, v, options);
  return at::scaled_dot_product_attention(q, k, v, std::nullopt, options.dropout, options.causal,
                                          scale_of(options))
      .transpose(-3, -2);
}

at::Tensor self_attention(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                          int64_t heads, const AttentionOptions& options, WeightLayout layout) {
  const bool inputs_first = layout == WeightLayout::kInputsFirst;
  const int64_t outputs = weight.dim() == 2 ? weight.size(inputs_first ? 1 : 0) : 1;
  if (input.dim() != 3 || heads < 1 || outputs % (3 * heads) != 0) {
    throw UsageError({.what = "self_attention() takes input [batch, positions, features] and a "
                              "weight whose outputs are 3 times a multiple of the heads",
                      .where = "ops::self_attention"});
  }
  const at::Tensor own_input = autocast_value(input).contiguous();
  const at::Tensor own_weight = autocast_value(weight);
  const at::Tensor own_bias = autocast_value(bias);
  const int64_t inner = outputs / 3;
  if (is_half_precision(own_input) && inner % 8 == 0 && kernels_for(own_input) != nullptr) {
    // Only shapes and strides count for the question; the memory is not touched.
    const at::Tensor part =
        own_input.new_empty({input.size(0), input.size(1), heads, inner / heads}).transpose(1, 2);
    if (runs_by_cudnn(part, part, part, options)) {
      return SelfAttention::apply(own_input, own_weight, optional_of(own_bias), heads,
                                  options.causal, options.dropout, options.scale, inputs_first);
    }
  }
  const at::Tensor packed = linear(own_input, own_weight, own_bias, layout);
  const auto parts = parts_of(packed, heads);
  return attention(parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2),
                   options)
      .reshape({input.size(0), input.size(1), inner});
}

}  // namespace accelerate::ops
