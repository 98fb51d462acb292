// Names of precisions, autocast blocks and what a prepared model does around its forward pass.
#include <ATen/autocast_mode.h>
#include <accelerate/autocast.h>
#include <accelerate/errors.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <map>
#include <stdexcept>

#include "support/error_of.h"

namespace accelerate {
namespace {

using test::error_text;
using testing::AllOf;
using testing::HasSubstr;

EnvironmentLookup table(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

struct Options {
  std::optional<MixedPrecision> mixed_precision{};
};

TEST(MixedPrecision, IsWrittenAsEnumeratorOrAsTheReferenceSpellsIt) {
  const Options by_value{.mixed_precision = MixedPrecision::kBf16};
  const Options by_name{.mixed_precision = "bf16"};
  EXPECT_EQ(by_value.mixed_precision, by_name.mixed_precision);
  EXPECT_EQ(MixedPrecision("no"), MixedPrecision::kNo);
  EXPECT_EQ(MixedPrecision("fp16"), MixedPrecision::kFp16);
  EXPECT_EQ(MixedPrecision("bf16"), MixedPrecision::kBf16);
  EXPECT_EQ(MixedPrecision(std::string("FP8")), MixedPrecision::kFp8);
  EXPECT_EQ(MixedPrecision(), MixedPrecision::kNo);
  for (const char* name : {"no", "fp16", "bf16", "fp8"})
    EXPECT_EQ(MixedPrecision(name).name(), name);
}

TEST(MixedPrecision, WrongNameSaysWhatIsMeant) {
  const auto meant = [](const char* name) {
    return error_text<UsageError>([&] { (void)MixedPrecision(name); });
  };
  EXPECT_EQ(meant("bf61"),
            "UsageError: unknown mixed precision 'bf61'\n"
            "  at   mixed_precision\n"
            "  try  'bf16' (known: no, fp16, bf16)");
  EXPECT_THAT(meant("float16"), HasSubstr("try  'fp16'"));
  EXPECT_THAT(meant("bfloat16"), HasSubstr("try  'bf16'"));
  EXPECT_THAT(meant("FP 16"), HasSubstr("try  'fp16'"));
  EXPECT_THAT(meant("none"), HasSubstr("try  'no'"));
  EXPECT_THAT(meant("fp88"), testing::Not(HasSubstr("'fp8'")));  // which would be refused
  EXPECT_THAT(meant("int4quant"), HasSubstr("try  one of no, fp16, bf16"));
}

TEST(MixedPrecision, ComesFromTheEnvironmentWhereItIsNotAskedFor) {
  const auto bf16 = table({{"ACCELERATE_MIXED_PRECISION", "BF16"}});
  EXPECT_EQ(resolve_mixed_precision(std::nullopt, bf16), MixedPrecision::kBf16);
  EXPECT_EQ(resolve_mixed_precision(MixedPrecision::kNo, bf16), MixedPrecision::kNo);
  EXPECT_EQ(resolve_mixed_precision(std::nullopt, table({})), MixedPrecision::kNo);
  EXPECT_THAT(error_text<ConfigError>([&] {
                (void)resolve_mixed_precision(std::nullopt,
                                              table({{"ACCELERATE_MIXED_PRECISION", "bp16"}}));
              }),
              AllOf(HasSubstr("unknown mixed precision 'bp16'"),
                    HasSubstr("at   ACCELERATE_MIXED_PRECISION"), HasSubstr("try  '")));
}

at::ScalarType type_of_product() {
  return torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

TEST(AutocastTest, MatrixProductsInsideTheBlockAreInItsType) {
  EXPECT_EQ(type_of_product(), at::kFloat);
  {
    const Autocast autocast(c10::kCPU, at::kBFloat16);
    EXPECT_EQ(type_of_product(), at::kBFloat16);
    {
      const Autocast inner(c10::kCPU, at::kHalf);
      EXPECT_EQ(type_of_product(), at::kHalf);
      {
        const Autocast off(c10::kCPU, at::kHalf, {.enabled = false});
        EXPECT_EQ(type_of_product(), at::kFloat);
      }
      EXPECT_EQ(type_of_product(), at::kHalf);
    }
    EXPECT_EQ(type_of_product(), at::kBFloat16);
  }
  EXPECT_EQ(type_of_product(), at::kFloat);
}

TEST(AutocastTest, AnExceptionRestoresWhatWasThereBefore) {
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  try {
    const Autocast autocast(c10::kCPU, at::kBFloat16, {.cache_enabled = false});
    EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
    throw std::runtime_error("leaves the block");
  } catch (const std::runtime_error&) {
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  EXPECT_EQ(at::autocast::increment_nesting(), 1);  // no level was left behind
  EXPECT_EQ(at::autocast::decrement_nesting(), 0);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
}

// A parameter that is changed by hand inside a block shows whether its converted copy was kept.
double product_after_change(const AutocastOptions& options) {
  const Autocast autocast(c10::kCPU, at::kBFloat16, options);
  auto weight = torch::ones({2, 2}, torch::requires_grad());
  torch::mm(torch::ones({2, 2}), weight);
  {
    const at::NoGradGuard no_grad;
    weight.fill_(3);
  }
  return torch::mm(torch::ones({2, 2}), weight).sum().item<double>();
}

TEST(AutocastTest, ConvertedParametersAreKeptUnlessTheCacheIsOff) {
  EXPECT_EQ(product_after_change({}), 2 * 4);
  EXPECT_EQ(product_after_change({.cache_enabled = false}), 6 * 4);
}

TEST(AutocastTest, ConvertedParametersLiveUntilTheOutermostBlockEnds) {
  auto weight = torch::ones({2, 2}, torch::requires_grad());
  const auto product = [&] {
    const Autocast inner(c10::kCPU, at::kBFloat16);
    return torch::mm(torch::ones({2, 2}), weight).sum().item<double>();
  };
  const auto change = [&](double value) {
    const at::NoGradGuard no_grad;
    weight.fill_(value);
  };
  {
    const Autocast outer(c10::kCPU, at::kBFloat16);
    EXPECT_EQ(product(), 8);
    change(3);
    EXPECT_EQ(product(), 8);
  }
  EXPECT_EQ(product(), 24);
  change(5);
  EXPECT_EQ(product(), 40);
}

TEST(AutocastTest, RefusesTypesAndDevicesThatLibtorchDoesNotCast) {
  EXPECT_EQ(error_text<UsageError>([] { const Autocast autocast(c10::kCPU, at::kDouble); }),
            "UsageError: autocast cannot compute in Double\n"
            "  at   autocast\n"
            "  try  use kHalf or kBFloat16");
  EXPECT_THAT(error_text<UsageError>([] { const Autocast autocast(c10::kMeta, at::kHalf); }),
              HasSubstr("autocast is not available on meta"));
  EXPECT_EQ(at::autocast::increment_nesting(), 1);
  EXPECT_EQ(at::autocast::decrement_nesting(), 0);
}

TEST(ConvertToFp32, ChangesHalfAndBfloat16Alone) {
  const auto half = torch::tensor({1.5, -2.0}, at::kHalf);
  EXPECT_TRUE(convert_to_fp32(half).equal(torch::tensor({1.5F, -2.0F})));
  EXPECT_EQ(convert_to_fp32(torch::ones({2}, at::kBFloat16)).scalar_type(), at::kFloat);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kBool}) {
    const auto other = torch::ones({2}, dtype);
    EXPECT_TRUE(convert_to_fp32(other).is_same(other));
  }
  EXPECT_FALSE(convert_to_fp32(at::Tensor()).defined());
}

TEST(ConvertToFp32, GradientsFlowThroughIt) {
  auto weight = torch::ones({2}, torch::TensorOptions(at::kBFloat16).requires_grad(true));
  convert_to_fp32(weight * 2).sum().backward();
  EXPECT_TRUE(weight.grad().equal(torch::full({2}, 2, at::kBFloat16)));
}

struct Pass {
  at::ScalarType inside, returned;
};

// What a prepared model does.
Pass forward_under(const PrecisionPolicy& policy) {
  at::Tensor output;
  {
    const auto guard = policy.autocast();
    output = torch::mm(torch::ones({2, 2}), torch::ones({2, 2}));
  }
  return {output.scalar_type(), policy.output(output).scalar_type()};
}

TEST(PrecisionPolicy, CastsTheForwardPassAndGivesItsOutputInFloat) {
  const Pass bf16 = forward_under({MixedPrecision::kBf16, c10::kCPU});
  EXPECT_EQ(bf16.inside, at::kBFloat16);
  EXPECT_EQ(bf16.returned, at::kFloat);
  const Pass fp16 = forward_under({MixedPrecision::kFp16, c10::kCPU});
  EXPECT_EQ(fp16.inside, at::kHalf);
  EXPECT_EQ(fp16.returned, at::kFloat);
}

TEST(PrecisionPolicy, LeavesEverythingAsItIsWithoutMixedPrecision) {
  const Autocast around(c10::kCPU, at::kBFloat16);  // set by the user
  const Pass pass = forward_under({MixedPrecision::kNo, c10::kCPU});
  EXPECT_EQ(pass.inside, at::kBFloat16);
  EXPECT_EQ(pass.returned, at::kBFloat16);
}

TEST(PrecisionPolicy, OptionsLeaveOutputsOrTurnAutocastOff) {
  const Pass kept = forward_under(
      {MixedPrecision::kBf16, c10::kCPU, PrecisionOptions{.convert_outputs_to_fp32 = false}});
  EXPECT_EQ(kept.returned, at::kBFloat16);
  const Pass off = forward_under(
      {MixedPrecision::kBf16, c10::kCPU, PrecisionOptions{.autocast = {.enabled = false}}});
  EXPECT_EQ(off.inside, at::kFloat);
  const PrecisionPolicy policy(MixedPrecision::kBf16, c10::kCPU);
  const auto block = policy.autocast({.enabled = false});
  EXPECT_EQ(type_of_product(), at::kFloat);
}

TEST(PrecisionPolicy, OnlyHalfPrecisionNeedsAScaler) {
  EXPECT_TRUE(PrecisionPolicy(MixedPrecision::kFp16, c10::kCPU).needs_grad_scaler());
  EXPECT_FALSE(PrecisionPolicy(MixedPrecision::kBf16, c10::kCPU).needs_grad_scaler());
  EXPECT_FALSE(PrecisionPolicy().needs_grad_scaler());
}

TEST(PrecisionPolicy, RefusesFp8OnTheCpu) {
  EXPECT_EQ(error_text<UsageError>([] { PrecisionPolicy(MixedPrecision::kFp8, c10::kCPU); }),
            "UsageError: fp8 needs a GPU of compute capability 8.9 or more; this process computes "
            "on cpu\n"
            "  at   mixed_precision\n"
            "  try  'bf16', which every device can");
}

}  // namespace
}  // namespace accelerate
