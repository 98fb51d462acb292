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

struct Rotation : FirstOrderFunction<Rotation> {
  static constexpr const char* kName = "ops::rotary_embedding";

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& cosine, const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return kernels_for(input)->rotary(input, cosine, sine, false);
  }

  static variable_list gradients(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor grad = upstream[0].contiguous();
    return {kernels_for(grad)->rotary(grad, saved[0], saved[1], true), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rotary_embedding(const at::Tensor& input, const at::Tensor& cosine,
                            const at::Tensor& sine) {
  const bool angles_fit = input.dim() >= 3 && input.size(-1) % 2 == 0 && cosine.dim() == 2 &&
                          cosine.size(0) == input.size(-3) &&
                          cosine.size(1) == input.size(-1) / 2 && sine.sizes() == cosine.sizes();
  if (!angles_fit) {
    throw UsageError({.what = "rotary_embedding() takes [..., positions, heads, width] and angles "
                              "[positions, width / 2]",
                      .hint = "make the angles with rotary_angles(positions, width)"});
  }
  require_same_device(cosine, input, "cosine", "ops::rotary_embedding");
  require_same_device(sine, input, "sine", "ops::rotary_embedding");
  const at::ScalarType type = input.scalar_type();
  const bool known = type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
  const bool fixed_angles = cosine.scalar_type() == at::kFloat &&
                            sine.scalar_type() == at::kFloat && !wants_gradient(cosine) &&
                            !wants_gradient(sine);
  if (known && fixed_angles && input.numel() > 0 && kernels_for(input) != nullptr) {
    return Rotation::apply(input.contiguous(), cosine.contiguous(), sine.contiguous());
  }
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const auto halves = input.to(wide).chunk(2, -1);
  const at::Tensor cos = cosine.to(wide).unsqueeze(1);
  const at::Tensor sin = sine.to(wide).unsqueeze(1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1)
      .to(type);
}

std::tuple<at::Tensor, at::Tensor> rotary_angles(int64_t positions, int64_t width, double base) {
  const at::Tensor exponents = at::arange(0, width, 2, at::kDouble) / static_cast<double>(width);
  const at::Tensor speeds = at::pow(base, -exponents);
  const at::Tensor angles = at::outer(at::arange(positions, at::kDouble), speeds);
  return {angles.cos().to(at::kFloat), angles.sin().to(at::kFloat)};
}

}  // namespace accelerate::ops
