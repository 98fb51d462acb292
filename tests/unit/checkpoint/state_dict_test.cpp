// States with tensors, and their way to torch.save and back.
#include "accelerate/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "accelerate/errors.h"
#include "accelerate/torch_archive.h"

namespace accelerate {
namespace {

TEST(StateValue, HoldsATensor) {
  const StateValue value = torch::ones({2});
  EXPECT_TRUE(at::equal(value.as_tensor(), torch::ones({2})));
  EXPECT_THROW(value.as_dict(), CheckpointError);
  try {
    static_cast<void>(StateValue(1).as_tensor());
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.message(), "the saved state has an integer where a tensor is expected");
  }
}

TEST(StateValue, TensorsAreEqualIfTypeShapeAndBitsAre) {
  const auto tensor = [](std::vector<float> values) { return StateValue(torch::tensor(values)); };
  EXPECT_EQ(tensor({1, 2}), tensor({1, 2}));
  EXPECT_FALSE(tensor({1, 2}) == tensor({1, 3}));
  EXPECT_FALSE(StateValue(torch::ones({2})) == StateValue(torch::ones({2, 1})));
  EXPECT_FALSE(StateValue(torch::ones({2})) == StateValue(torch::ones({2}, at::kDouble)));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(tensor({nan}), tensor({nan}));
  EXPECT_FALSE(tensor({0.0F}) == tensor({-0.0F}));
  EXPECT_EQ(StateValue(torch::arange(6).view({2, 3}).t()),
            StateValue(torch::arange(6).view({2, 3}).t().contiguous()));
  EXPECT_FALSE(StateValue(torch::ones({})) == StateValue(1.0));
  EXPECT_EQ(StateValue(at::Tensor()), StateValue(at::Tensor()));
}

TEST(StateValue, BecomesATorchValueAndBack) {
  const StateDict state{{"none", {}},
                        {"truth", true},
                        {"integer", 3},
                        {"number", 0.5},
                        {"text", "x"},
                        {"list", StateValue::List{1, "two"}},
                        {"dict", StateDict{{"tensor", torch::ones({2})}}}};
  const TorchValue value = to_torch_value(state);
  EXPECT_EQ(value.as_dict().at("integer").as_integer(), 3);
  EXPECT_EQ(to_state_dict(value), state);
}

TEST(StateValue, TakesTuplesAsListsAndIntegersAsNames) {
  const TorchValue value = TorchDict{{"betas", TorchTuple{{0.9, 0.99}}},
                                     {"size", TorchSize{{2, 3}}},
                                     {"milestones", TorchDict{{30, 1}, {80, 1}}}};
  const StateDict state = to_state_dict(value);
  EXPECT_EQ(state.at("betas").as_numbers(), (std::vector<double>{0.9, 0.99}));
  EXPECT_EQ(state.at("size").as_integers(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(state.at("milestones").as_dict().at("80").as_integer(), 1);
}

TEST(StateValue, NamesThePlaceOfAValueThatHasNoCounterpart) {
  const auto place_of = [](const TorchValue& value) {
    try {
      to_state_value(value);
    } catch (const CheckpointError& error) {
      return error.message() + " at " + error.where();
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(place_of(TorchDict{{"a", TorchValue::List{1, TorchBytes{"x"}}}}),
            "a state of this library cannot hold bytes at ['a'][1]");
  EXPECT_EQ(place_of(at::kFloat),
            "a state of this library cannot hold a dtype at the value itself");
  EXPECT_EQ(
      place_of(TorchDict{{0.5, 1}}),
      "a state of this library cannot hold a dict with a number as a key at the value itself");
  EXPECT_EQ(place_of(TorchDict{{"1", 1}, {1, 2}}),
            "a state of this library cannot hold two values with the same name at ['1']");
}

}  // namespace
}  // namespace accelerate
