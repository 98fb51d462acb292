#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "compat/touched.h"
#include "ops/first_order_function.h"
#include "ops/gradients.h"

namespace accelerate::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Embedding : FirstOrderFunction<Embedding> {
  static constexpr const char* kName = "ops::embedding";

  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens,
                            const at::Tensor& token_table,
                            const std::optional<at::Tensor>& own_position_table) {
    const at::Tensor position_table = own_position_table.value_or(at::Tensor());
    context->save_for_backward({tokens, token_table, position_table});
    const compat::Touch touch({token_table, position_table}, kName);
    return kernels_for(tokens)->embedding_forward(tokens, token_table, position_table);
  }

  static variable_list gradients(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const std::array<at::Tensor, 2> tables{saved[1], saved[2]};
    std::array<at::Tensor, 2> sums;
    std::array<bool, 2> own{};
    for (size_t i = 0; i < 2; ++i) {
      if (!tables[i].defined() || !context->needs_input_grad(i + 1)) continue;
      sums[i] = float_gradient_of(tables[i]);
      own[i] = !sums[i].defined();
      if (!own[i]) note_write(sums[i]);
      if (own[i]) sums[i] = at::zeros_like(tables[i], tables[i].options().dtype(at::kFloat));
    }
    kernels_for(saved[0])->embedding_backward(for_kernels(upstream[0]), saved[0], sums[0], sums[1]);
    variable_list result(3);
    for (size_t i = 0; i < 2; ++i) {
      if (own[i]) result[i + 1] = sums[i].to(tables[i].scalar_type());
    }
    return result;
  }
};

// Kernels read and add to the tables without a look at their ends.
void require_fitting_tables(const at::Tensor& tokens, const at::Tensor& token_table,
                            const at::Tensor& position_table) {
  constexpr const char* kWhere = "ops::embedding";
  require_same_device(tokens, token_table, "tokens", kWhere);
  require_same_device(position_table, token_table, "position_table", kWhere);
  const bool fits = token_table.dim() == 2 && tokens.dim() >= 1 &&
                    (!position_table.defined() ||
                     (position_table.dim() == 2 && position_table.size(1) == token_table.size(1) &&
                      position_table.size(0) >= tokens.size(-1)));
  if (fits) return;
  throw UsageError({.what = "tokens " + c10::str(tokens.sizes()) + " do not match the tables " +
                            c10::str(token_table.sizes()) +
                            (position_table.defined() ? " and " + c10::str(position_table.sizes())
                                                      : std::string()),
                    .where = kWhere,
                    .hint = "tables are [tokens, features] and [positions, features], with a row "
                            "for each position"});
}

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& token_table,
                     const at::Tensor& position_table) {
  require_fitting_tables(tokens, token_table, position_table);
  const bool alike =
      !position_table.defined() || position_table.scalar_type() == token_table.scalar_type();
  // The kernel adds gradients up in the order in which threads come.
  const bool any_order = !at::globalContext().deterministicAlgorithms();
  if (alike && any_order && tokens.numel() > 0 && tokens.scalar_type() == at::kLong &&
      row_kernels_for(token_table, token_table.scalar_type()) != nullptr) {
    return Embedding::apply(tokens.contiguous(), token_table,
                            optional_of(for_kernels(position_table)));
  }
  const at::Tensor found = at::embedding(token_table, tokens);
  if (!position_table.defined()) return found;
  return found + position_table.narrow(0, 0, tokens.size(-1));
}

}  // namespace accelerate::ops
