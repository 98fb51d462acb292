// Trainings by a configuration of DeepSpeed: clipping, batches, optimizers and schedules.
#include "multiproc/configured/configured.h"
#include "multiproc/state_folder.h"
#include "support/error_of.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Dataset = TensorDataset;

struct ConfiguredTraining : Ranks {};

json with_optimizer(const json& params, const char* type = "AdamW") {
  return {{"optimizer", {{"type", type}, {"params", params}}}};
}

std::shared_ptr<Mlp> seeded_mlp() {
  torch::manual_seed(3);
  return std::make_shared<Mlp>(40);
}

template <class Model>
void micro_step(Accelerator& accelerator, Model& model, PreparedOptimizer& optimizer, int number,
                double max_norm = 0) {
  const int rank = accelerator.process_index();
  const StepData data = data_of_step(number, kRows * accelerator.num_processes());
  const auto window = accelerator.accumulate(model);
  accelerator.backward(loss_of(model(rows_of(data.input, rank)), rows_of(data.target, rank)));
  if (max_norm > 0 && accelerator.sync_gradients()) {
    accelerator.clip_grad_norm_(model->parameters(), max_norm);
  }
  optimizer.step();
  optimizer.zero_grad();
}

// The parameters after six batches by SGD of the program; `max_norm`: it clips by itself.
std::vector<double> trained(const AcceleratorOptions& options, double max_norm = 0) {
  Accelerator accelerator(options);
  auto net = seeded_mlp();
  auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.5));
  for (int number = 0; number < 6; ++number) {
    micro_step(accelerator, model, optimizer, number, max_norm);
  }
  return values_of(net->parameters());
}

TEST_F(ConfiguredTraining, GradientsAreClippedAndAccumulatedAsTheConfigurationSays) {
  run(2, [](const Rank&) {
    for (const int stage : {0, 1, 2, 3}) {
      AcceleratorOptions by_hand = stage == 0 ? on_cpu() : zero(stage);
      by_hand.gradient_accumulation.steps = 2;
      const std::vector<double> expected = trained(by_hand, 0.1);
      EXPECT_NE(trained(by_hand), expected);
      const RankVariables set(deepspeed_variables(deepspeed_config(
          stage, {{"gradient_clipping", 0.1}, {"gradient_accumulation_steps", 2}})));
      EXPECT_EQ(trained(on_cpu()), expected) << "stage " << stage;
      EXPECT_EQ(trained(on_cpu(), 0.1), expected) << "stage " << stage;  // the program as well
    }
  });
}

TEST_F(ConfiguredTraining, AProgramThatClipsToAnotherNormIsRefused) {
  run(1, [](const Rank&) {
    const RankVariables set(deepspeed_variables(deepspeed_config(0, {{"gradient_clipping", 0.5}})));
    try {
      trained(on_cpu(), 0.25);
      ADD_FAILURE() << "accepted";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.message(),
                "the program clips gradients to a norm of 0.25, and the configuration says 0.5");
      EXPECT_THAT(error.where(),
                  AllOf(HasSubstr("clip_grad_norm_ and "), HasSubstr("gradient_clipping")));
    }
  });
}

TEST_F(ConfiguredTraining, AnOpenNormIsThatOfTheProgramElseOne) {
  run(1, [](const Rank&) {
    AcceleratorOptions plain = on_cpu();
    const std::vector<double> by_program = trained(plain, 0.25);
    const std::vector<double> by_one = trained(plain, 1.0);
    const RankVariables set(
        deepspeed_variables(deepspeed_config(0, {{"gradient_clipping", "auto"}})));
    EXPECT_EQ(trained(plain, 0.25), by_program);
    EXPECT_EQ(trained(plain), by_one);
  });
}

TEST_F(ConfiguredTraining, ScaledGradientsAreClippedAfterTheScaleIsGone) {
  run(2, [](const Rank&) {
    for (const int stage : {0, 2}) {
      AcceleratorOptions by_hand = stage == 0 ? on_cpu() : zero(stage);
      by_hand.mixed_precision = "fp16";
      by_hand.grad_scaler.init_scale = 128;
      const std::vector<double> expected = trained(by_hand, 0.1);
      const RankVariables set(deepspeed_variables(deepspeed_config(
          stage,
          {{"gradient_clipping", 0.1}, {"fp16", {{"enabled", true}, {"loss_scale", 128}}}})));
      EXPECT_EQ(trained(on_cpu()), expected) << "stage " << stage;
    }
  });
}

TEST_F(ConfiguredTraining, ParametersAndGradientsTravelInTheTypesOfTheConfiguration) {
  run(2, [](const Rank&) {
    AcceleratorOptions by_hand = on_cpu();
    by_hand.mixed_precision = "bf16";
    by_hand.strategy = ZeroOptions{
        .stage = 3, .reduce_dtype = at::kBFloat16, .units = {.param_dtype = at::kBFloat16}};
    const std::vector<double> expected = trained(by_hand);
    by_hand.strategy = ZeroOptions{.stage = 3};
    EXPECT_NE(trained(by_hand), expected);
    const RankVariables set(
        deepspeed_variables(deepspeed_config(3, {{"bf16", {{"enabled", true}}},
                                                 {"data_types", {{"param_dtype", "bf16"}}},
                                                 {"communication_data_type", "bf16"}})));
    EXPECT_EQ(trained(on_cpu()), expected);
  });
}

Dataset rows(int64_t count) { return {torch::ones({count, 6}), torch::ones({count, 3})}; }

// Trains one batch of loaders of these sizes; returns how many batches make an update.
int64_t steps_with_loaders(const std::vector<int64_t>& batch_sizes, AcceleratorOptions options) {
  Accelerator accelerator(options);
  auto net = seeded_mlp();
  auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.5));
  std::vector<DataLoader<Dataset>> loaders;
  for (const int64_t size : batch_sizes) {
    loaders.push_back(accelerator.prepare(data_loader(rows(48), {.batch_size = size})));
  }
  micro_step(accelerator, model, optimizer, 0);
  return accelerator.gradient_accumulation_steps();
}

TEST_F(ConfiguredTraining, OpenBatchSizesAreThoseOfTheLoaders) {
  run(2, [](const Rank&) {
    const json open = {{"train_micro_batch_size_per_gpu", "auto"},
                       {"train_batch_size", 24},
                       {"zero_optimization", {{"stage", 1}}}};
    const RankVariables set(deepspeed_variables(open));
    EXPECT_EQ(steps_with_loaders({4}, on_cpu()), 3);
    EXPECT_EQ(steps_with_loaders({12, 6}, on_cpu()), 2);  // the smallest
    AcceleratorOptions split = on_cpu();
    split.data_loader.split_batches = true;
    EXPECT_EQ(steps_with_loaders({8}, split), 3);
    EXPECT_THAT(error_text<ConfigError>([] { steps_with_loaders({5}, on_cpu()); }),
                HasSubstr("train_batch_size is 24, which is not"));
    EXPECT_THAT(error_text<ConfigError>([] { steps_with_loaders({}, on_cpu()); }),
                HasSubstr("\"auto\" of train_micro_batch_size_per_gpu"));
  });
}

TEST_F(ConfiguredTraining, AMicroBatchOfNoLoaderIsRefused) {
  run(1, [](const Rank&) {
    const RankVariables set(deepspeed_variables(deepspeed_config(0)));
    EXPECT_EQ(steps_with_loaders({8, 4}, on_cpu()), 1);
    EXPECT_EQ(steps_with_loaders({}, on_cpu()), 1);
    EXPECT_THAT(error_text<ConfigError>([] { steps_with_loaders({8}, on_cpu()); }),
                AllOf(HasSubstr("- ds train_micro_batch_size_per_gpu=4 vs arg "
                                "train_micro_batch_size_per_gpu=8"),
                      HasSubstr("the prepared loaders")));
  });
}

TEST_F(ConfiguredTraining, AStandInIsTheOptimizerOfTheConfiguration) {
  run(1, [](const Rank&) {
    const RankVariables set(deepspeed_variables(deepspeed_config(
        0, with_optimizer({{"lr", 0.25}, {"weight_decay", "auto"}, {"betas", {0.5, 0.75}}}))));
    Accelerator accelerator(on_cpu());
    auto net = seeded_mlp();
    const ConfiguredOptimizerOptions open{.lr = 9, .weight_decay = 0.5};
    const ConfiguredOptimizer stands(net->parameters(), open);
    const PreparedOptimizer optimizer = accelerator.prepare(stands);
    const auto& adamw = dynamic_cast<const torch::optim::AdamW&>(optimizer.optimizer());
    const auto& options =
        static_cast<const torch::optim::AdamWOptions&>(adamw.param_groups()[0].options());
    EXPECT_EQ(options.lr(), 0.25);
    EXPECT_EQ(options.weight_decay(), 0.5);
    EXPECT_EQ(options.betas(), std::make_tuple(0.5, 0.75));
    EXPECT_EQ(optimizer.parameters().size(), 4U);
  });
}

TEST_F(ConfiguredTraining, GroupsKeepWhatSetsThemApart) {
  run(1, [](const Rank&) {
    const RankVariables set(deepspeed_variables(
        deepspeed_config(0, with_optimizer({{"lr", "auto"}, {"momentum", 0.5}}, "SGD"))));
    Accelerator accelerator(on_cpu());
    auto net = seeded_mlp();
    namespace optim = torch::optim;
    std::vector<optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector{net->first->weight});
    groups.emplace_back(
        std::vector{net->first->bias},
        std::make_unique<optim::AdamOptions>(optim::AdamOptions(0.5).weight_decay(0.125)));
    optim::Adam own(groups, optim::AdamOptions(0.75));
    const auto optimizer = accelerator.prepare(ConfiguredOptimizer(own));
    const auto& made = dynamic_cast<const optim::SGD&>(optimizer.optimizer()).param_groups();
    ASSERT_EQ(made.size(), 2U);
    const auto option = [&](size_t group) {
      return static_cast<const optim::SGDOptions&>(made[group].options());
    };
    EXPECT_EQ(option(0).lr(), 0.75);
    EXPECT_EQ(option(0).weight_decay(), 0);
    EXPECT_EQ(option(0).momentum(), 0.5);
    EXPECT_EQ(option(1).lr(), 0.5);
    EXPECT_EQ(option(1).weight_decay(), 0.125);
    EXPECT_TRUE(made[1].params()[0].is_same(net->first->bias));
  });
}

TEST_F(ConfiguredTraining, WithoutASectionTheProgramsOwnIsTaken) {
  run(1, [](const Rank&) {
    const auto check = [] {
      Accelerator accelerator(on_cpu());
      auto net = seeded_mlp();
      torch::optim::SGD own(net->parameters(), 0.5);
      const ConfiguredOptimizer stands(own);
      const ConfiguredScheduler schedule(stands, {.otherwise = [](torch::optim::Optimizer& moved) {
                                           return Scheduler(
                                               moved, step_lr({.step_size = 1, .gamma = 0.5}));
                                         }});
      auto [scheduler, optimizer] = accelerator.prepare(schedule, stands);
      EXPECT_EQ(&optimizer.optimizer(), &own);
      EXPECT_EQ(&scheduler.scheduler().optimizer(), &own);
      EXPECT_THAT(usage_error([&] { accelerator.prepare(ConfiguredOptimizer(net->parameters())); }),
                  HasSubstr("a stand-in for the optimizer of the configuration, which has none"));
      EXPECT_THAT(usage_error([&] { accelerator.prepare(ConfiguredScheduler(own)); }),
                  HasSubstr("a stand-in for the schedule of the configuration, which has none"));
    };
    check();
    const RankVariables set(deepspeed_variables(deepspeed_config(0)));
    check();
  });
}

TEST_F(ConfiguredTraining, WhatTheConfigurationHasTheProgramMustNotBring) {
  run(1, [](const Rank&) {
    const RankVariables set(deepspeed_variables(deepspeed_config(
        0, {{"optimizer", {{"type", "SGD"}}}, {"scheduler", {{"type", "WarmupLR"}}}})));
    Accelerator accelerator(on_cpu());
    auto net = seeded_mlp();
    torch::optim::SGD own(net->parameters(), 0.5);
    EXPECT_THAT(error_text<ConfigError>([&] { (void)accelerator.prepare(own); }),
                AllOf(HasSubstr("the configuration has an optimizer, and the program brings its "
                                "own"),
                      HasSubstr("prepare and "), HasSubstr(": optimizer")));
    const Scheduler schedule(own, step_lr({.step_size = 1}));
    EXPECT_THAT(error_text<ConfigError>([&] { (void)accelerator.prepare(schedule); }),
                HasSubstr("the configuration has a schedule, and the program brings its own"));
  });
}

json with_warmup(const json& params) {
  return {{"scheduler", {{"type", "WarmupDecayLR"}, {"params", params}}}};
}

TEST_F(ConfiguredTraining, OpenStepsOfAScheduleAreThoseOfTheStandIn) {
  run(2, [](const Rank&) {
    json config = deepspeed_config(1, with_optimizer({{"lr", 0.5}}, "SGD"));
    config.merge_patch(with_warmup({{"warmup_num_steps", "auto"},
                                    {"total_num_steps", "auto"},
                                    {"warmup_max_lr", "auto"},
                                    {"warmup_type", "linear"}}));
    const RankVariables set(deepspeed_variables(config));
    Accelerator accelerator(on_cpu());
    auto net = seeded_mlp();
    const ConfiguredOptimizer stands(net->parameters());
    const ConfiguredSchedulerOptions open{.warmup_steps = 2, .training_steps = 11};
    auto [model, optimizer, scheduler] =
        accelerator.prepare(net, stands, ConfiguredScheduler(stands, open));
    // 11 batches are 6 updates of 2 ranks; the first two use the lowest rate.
    std::vector<double> rates;
    for (int number = 0; number < 7; ++number) {
      rates.push_back(scheduler.last_lr()[0]);
      micro_step(accelerator, model, optimizer, number);
      scheduler.step();
    }
    EXPECT_THAT(rates, testing::ElementsAre(0, 0, 0.25, 0.5, 0.375, 0.25, 0.125));
  });
}

TEST_F(ConfiguredTraining, AScheduleThatNothingStandsForGoesWithTheUpdates) {
  run(2, [](const Rank&) {
    const RankVariables set(deepspeed_variables(deepspeed_config(
        2, {{"gradient_accumulation_steps", 2},
            {"scheduler",
             {{"type", "WarmupLR"},
              {"params", {{"warmup_num_steps", 4}, {"warmup_type", "linear"}}}}}})));
    Accelerator accelerator(on_cpu());
    auto net = seeded_mlp();
    auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 1.0));
    std::vector<double> rates;
    for (int number = 0; number < 8; ++number) {
      micro_step(accelerator, model, optimizer, number);
      rates.push_back(optimizer.param_groups()[0].options().get_lr());
    }
    EXPECT_THAT(rates, testing::ElementsAre(0, 0, 0, 0.25, 0.25, 0.5, 0.5, 0.75));
  });
}

TEST_F(ConfiguredTraining, TwoOptimizersNeedAStandInForTheSchedule) {
  run(1, [](const Rank&) {
    const RankVariables set(
        deepspeed_variables(deepspeed_config(0, {{"scheduler", {{"type", "WarmupLR"}}}})));
    Accelerator accelerator(on_cpu());
    auto net = seeded_mlp();
    auto [model, first, second] =
        accelerator.prepare(net, torch::optim::SGD(net->first->parameters(), 1.0),
                            torch::optim::SGD(net->second->parameters(), 1.0));
    EXPECT_THAT(error_text<ConfigError>([&, &model = model, &first = first] {
                  micro_step(accelerator, model, first, 0);
                }),
                AllOf(HasSubstr("the configuration has a schedule, and 2 optimizers were prepared"),
                      HasSubstr(": scheduler")));
  });
}

// The second half of a training that was saved in the middle is that of one that was not.
TEST_F(ConfiguredTraining, AConfiguredTrainingIsResumed) {
  const StateFolder folder;
  run(2, [&](const Rank&) {
    json config = deepspeed_config(3, with_optimizer({{"lr", 0.1}}));
    config.merge_patch(with_warmup({{"warmup_num_steps", 3}, {"total_num_steps", 9}}));
    const RankVariables set(deepspeed_variables(config));
    const auto train = [&](int first, int last, bool loads) {
      Accelerator accelerator(on_cpu());
      auto net = seeded_mlp();
      const ConfiguredOptimizer stands(net->parameters());
      auto [model, optimizer] = accelerator.prepare(net, stands);
      if (loads) accelerator.load_state(folder / "half");
      for (int number = first; number < last; ++number) {
        micro_step(accelerator, model, optimizer, number);
        if (number == 3 && !loads) accelerator.save_state(folder / "half");
      }
      std::vector<double> values = values_of(net->parameters());
      values.push_back(optimizer.param_groups()[0].options().get_lr());
      return values;
    };
    const std::vector<double> in_one_run = train(0, 7, false);
    EXPECT_EQ(train(4, 7, true), in_one_run);
  });
}

}  // namespace
}  // namespace accelerate::test
