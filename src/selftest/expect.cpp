#include "selftest/expect.h"

#include <torch/torch.h>

namespace accelerate::selftest {

std::string show(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  const at::Tensor values = tensor.detach().to(at::kCPU, at::kDouble).flatten().contiguous();
  std::vector<double> numbers(values.data_ptr<double>(),
                              values.data_ptr<double>() + values.numel());
  std::string text = tensor.dim() == 0 ? show(numbers[0]) : show(numbers);
  if (tensor.dim() > 1) text += " of shape " + show(tensor.sizes());
  return text;
}

void mismatch(const std::string& what, const std::string& expected, const std::string& got) {
  throw Mismatch(what + ": expected " + expected + ", got " + got);
}

void expect_same(const std::string& what, const at::Tensor& got, const at::Tensor& expected) {
  if (!got.defined()) mismatch(what, show(expected), show(got));
  if (got.scalar_type() != expected.scalar_type()) {
    mismatch(what, c10::toString(expected.scalar_type()), c10::toString(got.scalar_type()));
  }
  const at::Tensor left = got.detach().cpu();
  const at::Tensor right = expected.detach().cpu();
  if (!left.equal(right)) mismatch(what, show(right), show(left));
}

void expect_near(const std::string& what, const at::Tensor& got, const at::Tensor& expected,
                 double tolerance) {
  const at::Tensor left = got.detach().to(at::kCPU, at::kDouble);
  const at::Tensor right = expected.detach().to(at::kCPU, at::kDouble);
  if (left.sizes() == right.sizes() &&
      torch::allclose(left, right, /*rtol=*/tolerance, /*atol=*/tolerance)) {
    return;
  }
  std::ostringstream expectation;
  expectation << show(right) << " within " << tolerance;
  mismatch(what, expectation.str(), show(left));
}

void expect_true(const std::string& what, bool holds) {
  if (!holds) throw Mismatch("expected that " + what);
}

at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : tensors) {
    rows.push_back(tensor.detach().to(at::kCPU, at::kDouble).flatten());
  }
  return torch::cat(rows);
}

}  // namespace accelerate::selftest
