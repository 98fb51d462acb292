// States that do not fit: everything is told at once, and nothing is changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accelerate/errors.h"
#include "accelerate/optimizer_state.h"
#include "unit/checkpoint/optimizer_state_training.h"

namespace accelerate {
namespace {

using test::Training;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Training adam_training() {
  Training training = test::make_training<torch::optim::Adam>(
      torch::optim::AdamOptions(0.01), torch::optim::AdamOptions(0.02).weight_decay(0.1), 1);
  training.steps(2);
  return training;
}

// What is said about `state`, after it is made sure that it is said before anything changes.
std::string problems_of(Training& training, const TorchValue& state) {
  std::vector<at::Tensor> before;
  for (const auto& [key, own] : training.optimizer->state()) {
    before.push_back(static_cast<torch::optim::AdamParamState&>(*own).exp_avg());
  }
  std::string message;
  for (const bool loads : {false, true}) {
    try {
      if (loads) {
        load_optimizer_state(*training.optimizer, state, "some/optimizer.bin");
      } else {
        check_optimizer_state(*training.optimizer, state, "some/optimizer.bin");
      }
      return "nothing was thrown";
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.where(), "some/optimizer.bin");
      message = error.message();
    }
  }
  size_t i = 0;
  for (const auto& [key, own] : training.optimizer->state()) {
    EXPECT_TRUE(static_cast<torch::optim::AdamParamState&>(*own).exp_avg().is_same(before[i++]));
  }
  EXPECT_EQ(training.optimizer->param_groups()[0].options().get_lr(), 0.01);
  return message;
}

// The state of `training` with one entry of the group or of the parameter replaced.
TorchDict with_option(const Training& training, const char* name, TorchValue value,
                      size_t group = 0) {
  TorchDict state = optimizer_state(*training.optimizer).as_dict();
  TorchValue::List groups = state.at("param_groups").as_sequence();
  TorchDict changed = groups[group].as_dict();
  changed.set(name, std::move(value));
  groups[group] = changed;
  state.set("param_groups", groups);
  return state;
}

TorchDict with_entry(const Training& training, int64_t parameter, const char* name,
                     TorchValue value) {
  TorchDict state = optimizer_state(*training.optimizer).as_dict();
  TorchDict states = state.at("state").as_dict();
  TorchDict changed = states.find(parameter)->as_dict();
  changed.set(name, std::move(value));
  states.set(parameter, changed);
  state.set("state", states);
  return state;
}

TEST(OptimizerStateProblems, AreAllToldAtOnce) {
  Training training = adam_training();
  TorchDict state = with_entry(training, 1, "exp_avg", torch::ones({7}));
  TorchDict states = state.at("state").as_dict();
  TorchDict second = states.find(2)->as_dict();
  second.set("exp_avg_sq", TorchValue());
  second.set("mystery", 1.0);
  states.set(2, second);
  states.set(99, TorchDict());
  state.set("state", states);
  EXPECT_EQ(
      problems_of(training, state),
      "the saved state does not fit the optimizer, Adam:\n"
      "    parameter 1 (group 0, shape [5]): 'exp_avg' has the shape [7]\n"
      "    parameter 2 (group 1, shape [2, 2]): 'exp_avg_sq' is missing\n"
      "    parameter 2 (group 1, shape [2, 2]): 'mystery' is not part of this optimizer's state\n"
      "    parameter 99: has a state but is in no group");
}

TEST(OptimizerStateProblems, NameOptionsThatWouldChangeTheNumbers) {
  Training training = adam_training();
  EXPECT_THAT(problems_of(training, with_option(training, "maximize", true)),
              HasSubstr("group 0: 'maximize' is not False"));
  EXPECT_THAT(problems_of(training, with_option(training, "decoupled_weight_decay", true, 1)),
              HasSubstr("group 1: 'decoupled_weight_decay' is not False"));
  EXPECT_EQ(problems_of(training, with_option(training, "decoupled_weight_decay", true, 0)),
            "nothing was thrown")
      << "without weight decay both kinds are the same";
  EXPECT_THAT(problems_of(training, with_option(training, "momentum_decay", 0.004)),
              HasSubstr("group 0: 'momentum_decay' is an option that the optimizer does not have"));
  EXPECT_THAT(problems_of(training, with_option(training, "amsgrad", true)),
              HasSubstr("parameter 0 (group 0, shape [3, 4]): 'max_exp_avg_sq' is missing"));
}

TEST(OptimizerStateProblems, NameOptionsOfAnotherKind) {
  Training training = adam_training();
  EXPECT_THAT(problems_of(training, with_option(training, "lr", "fast")),
              HasSubstr("group 0: 'lr' is a string, not a number"));
  EXPECT_THAT(problems_of(training, with_option(training, "eps", TorchValue())),
              HasSubstr("group 0: 'eps' is missing"));
  EXPECT_THAT(problems_of(training, with_option(training, "betas", TorchTuple{{0.9}})),
              HasSubstr("group 0: 'betas' is not a pair of numbers"));
  EXPECT_THAT(problems_of(training, with_option(training, "amsgrad", 1)),
              HasSubstr("group 0: 'amsgrad' is an integer, not a boolean"));
}

TEST(OptimizerStateProblems, NameGroupsAndParametersThatAreMissing) {
  Training training = adam_training();
  EXPECT_THAT(problems_of(training, with_option(training, "params", TorchValue::List{0})),
              HasSubstr("group 0: has 1 parameters, the optimizer has 2"));
  EXPECT_THAT(problems_of(training, with_option(training, "params", TorchValue::List{2, 2})),
              HasSubstr("distinct integers"));
  EXPECT_THAT(problems_of(training, with_option(training, "params", TorchValue())),
              HasSubstr("group 0: has no list 'params'"));
  TorchDict state = optimizer_state(*training.optimizer).as_dict();
  state.set("param_groups", TorchValue::List{});
  EXPECT_THAT(problems_of(training, state), HasSubstr("has 0 groups, the optimizer has 2"));
  EXPECT_THAT(problems_of(training, TorchDict{{"state", TorchDict()}}),
              HasSubstr("the state: has no 'param_groups'"));
  EXPECT_THAT(problems_of(training, 3), HasSubstr("the state: is an integer, not a dict"));
}

TEST(OptimizerStateProblems, NameStatesOfAnotherKind) {
  Training training = adam_training();
  EXPECT_THAT(problems_of(training, with_entry(training, 0, "step", torch::tensor(1.5))),
              HasSubstr("'step' is not a number of steps"));
  EXPECT_THAT(problems_of(training, with_entry(training, 0, "step", -1)),
              HasSubstr("'step' is not a number of steps"));
  EXPECT_THAT(problems_of(training, with_entry(training, 0, "exp_avg", 1.0)),
              HasSubstr("'exp_avg' is a number, not a tensor"));
  EXPECT_THAT(problems_of(training, with_entry(training, 0, "exp_avg",
                                               torch::zeros({3, 4}, at::kComplexFloat))),
              HasSubstr("'exp_avg' is of the type ComplexFloat"));
}

TEST(OptimizerStateProblems, ComeFromTheStateOfAnotherOptimizer) {
  Training adam = adam_training();
  const auto kinds = test::training_kinds();
  for (const auto& kind : kinds) {
    if (kind.name.starts_with("Adam") || kind.name.starts_with("Lbfgs")) continue;
    Training other = kind.make(1);
    other.steps(1);
    EXPECT_THAT(problems_of(adam, optimizer_state(*other.optimizer)), HasSubstr("does not fit"))
        << kind.name;
    EXPECT_THROW(load_optimizer_state(*other.optimizer, optimizer_state(*adam.optimizer)),
                 CheckpointError)
        << kind.name;
  }
}

TEST(OptimizerStateProblems, AdagradNeedsTheStateOfEveryParameter) {
  Training training = test::make_training<torch::optim::Adagrad>(
      torch::optim::AdagradOptions(0.1), torch::optim::AdagradOptions(0.1), 1);
  TorchDict state = optimizer_state(*training.optimizer).as_dict();
  state.set("state", TorchDict());
  try {
    load_optimizer_state(*training.optimizer, state);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.message(), HasSubstr("'state': has 0 parameters, 3 are needed"));
  }
}

class OwnSgd : public torch::optim::SGD {
 public:
  using SGD::SGD;
};

TEST(OptimizerStateProblems, TypesThatAreNotKnownAreRefusedByName) {
  OwnSgd optimizer({torch::ones({2}, torch::requires_grad())}, torch::optim::SGDOptions(0.1));
  try {
    optimizer_state(optimizer);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.message(), HasSubstr("its type is not known"));
    EXPECT_THAT(error.where(), HasSubstr("OwnSgd"));
  }
  EXPECT_THROW(load_optimizer_state(optimizer, TorchDict()), CheckpointError);
}

TEST(OptimizerStateProblems, EntriesForAnotherNumberOfGroupsAreAMistakeOfTheCaller) {
  Training training = adam_training();
  EXPECT_THROW(optimizer_state(*training.optimizer, {.group_entries = {TorchDict()}}), UsageError);
}

// A few bytes of a file may describe terabytes, and a list may name one tensor again and again.
TEST(OptimizerStateProblems, TensorsOfAnyShapeAreNotLargerThanTheirMemory) {
  const std::vector<at::Tensor> parameters{torch::ones({3}, torch::requires_grad())};
  torch::optim::LBFGS lbfgs(parameters, torch::optim::LBFGSOptions(0.1));
  const auto state_with = [&](const char* name, TorchValue value) {
    TorchDict own{{"func_evals", 2},
                  {"n_iter", 1},
                  {"d", torch::ones({3})},
                  {"t", 0.1},
                  {"old_dirs", TorchValue::List{torch::ones({3})}},
                  {"old_stps", TorchValue::List{torch::ones({3})}},
                  {"ro", TorchValue::List{torch::ones({})}},
                  {"H_diag", torch::ones({})},
                  {"prev_flat_grad", torch::ones({3})},
                  {"prev_loss", 0.5},
                  {"al", TorchValue::List{torch::ones({}), TorchValue()}}};
    own.set(name, std::move(value));
    TorchDict state = optimizer_state(lbfgs).as_dict();
    TorchDict states;
    states.add(0, own);
    state.set("state", states);
    return state;
  };
  const auto message_of = [&](const char* name, TorchValue value) {
    try {
      check_optimizer_state(lbfgs, state_with(name, std::move(value)), "optimizer.bin");
    } catch (const CheckpointError& error) {
      return error.message();
    }
    return std::string("taken");
  };
  const at::Tensor enormous = torch::ones({1}).expand({int64_t{1} << 44});
  const TorchValue::List repeated(1000, torch::ones({100}));
  EXPECT_EQ(message_of("d", torch::ones({3})), "taken");
  EXPECT_THAT(message_of("d", enormous),
              HasSubstr("'d' describes far more than the file holds: shape [17592186044416]"));
  EXPECT_THAT(message_of("prev_flat_grad", enormous), HasSubstr("'prev_flat_grad' describes"));
  EXPECT_THAT(message_of("old_dirs", TorchValue::List{enormous}), HasSubstr("'old_dirs' describe"));
  EXPECT_THAT(message_of("old_stps", repeated), HasSubstr("'old_stps' describe"));
  EXPECT_THAT(message_of("al", TorchValue::List{enormous}), HasSubstr("'al' describe"));
}

}  // namespace
}  // namespace accelerate
