#include <ATen/ATen.h>
#include <torch/autograd.h>

#include "accelerate/ops.h"
#include "ops/gradients.h"

namespace accelerate::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Embedding : torch::autograd::Function<Embedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens,
                            const at::Tensor& token_table,
                            const std::optional<at::Tensor>& own_position_table) {
    const at::Tensor position_table = own_position_table.value_or(at::Tensor());
    context->save_for_backward({tokens, token_table, position_table});
    return kernels_for(tokens)->embedding_forward(tokens, token_table, position_table);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const std::array<at::Tensor, 2> tables{saved[1], saved[2]};
    std::array<at::Tensor, 2> sums;
    std::array<bool, 2> own{};
    for (size_t i = 0; i < 2; ++i) {
      if (!tables[i].defined() || !context->needs_input_grad(i + 1)) continue;
      sums[i] = float_gradient_of(tables[i]);
      own[i] = !sums[i].defined();
      if (own[i]) sums[i] = at::zeros_like(tables[i], tables[i].options().dtype(at::kFloat));
    }
    kernels_for(saved[0])->embedding_backward(gradients[0].contiguous(), saved[0], sums[0],
                                              sums[1]);
    variable_list result(3);
    for (size_t i = 0; i < 2; ++i) {
      if (own[i]) result[i + 1] = sums[i].to(tables[i].scalar_type());
    }
    return result;
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& token_table,
                     const at::Tensor& position_table) {
  const bool alike =
      !position_table.defined() || position_table.scalar_type() == token_table.scalar_type();
  if (alike && tokens.numel() > 0 && tokens.scalar_type() == at::kLong &&
      row_kernels_for(token_table, token_table.scalar_type()) != nullptr &&
      (!position_table.defined() || position_table.is_contiguous())) {
    return Embedding::apply(tokens.contiguous(), token_table, optional_of(position_table));
  }
  const at::Tensor found = at::embedding(token_table, tokens);
  if (!position_table.defined()) return found;
  return found + position_table.narrow(0, 0, tokens.size(-1));
}

}  // namespace accelerate::ops
