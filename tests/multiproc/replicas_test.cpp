// Loops that are ported by half do not train the ranks apart, and right ones are left in peace.
#include <chrono>
#include <set>
#include <thread>

#include "multiproc/state_folder.h"
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Replicas : Ranks {
  // A UsageError that is the same on all ranks but for the rank in front.
  void expect_one_error_on_all(int world_size, const testing::Matcher<std::string>& matcher) {
    std::set<std::string> texts;
    for (int rank = 0; rank < world_size; ++rank) {
      EXPECT_EQ(exit_code_of(rank), kExitUsageError) << error_of(rank);
      const std::string text = error_of(rank);
      EXPECT_THAT(text, HasSubstr("[rank " + std::to_string(rank) + " of "));
      texts.insert(text.substr(text.find(']')));
    }
    EXPECT_THAT(texts, testing::ElementsAre(matcher));
  }
};

constexpr const char* kLocalPass = "a backward pass bypassed accelerator.backward(loss)";

TensorDataset samples() {
  const StepData data = host_data_of_step(1, 16);
  return {data.input, data.target};
}

// A model, its optimizer and a loader, prepared, beside what they were made of.
struct HalfPorted {
  explicit HalfPorted(const DdpOptions& ddp = {}) : accelerator(on_cpu(ddp)) {
    torch::manual_seed(3);
    net = std::make_shared<Mlp>();
    sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
    model.emplace(accelerator.prepare(net));
    optimizer.emplace(accelerator.prepare(sgd));
    loader.emplace(accelerator.prepare(data_loader(samples(), {.batch_size = 2})));
  }
  // One pass as it should be.
  void train() {
    for (auto& batch : *loader) {
      accelerator.backward(loss_of((*model)(batch.data), batch.target));
      optimizer->step();
      optimizer->zero_grad();
    }
  }

  Accelerator accelerator;
  std::shared_ptr<Mlp> net;
  std::shared_ptr<torch::optim::SGD> sgd;
  std::optional<PreparedModel<Mlp>> model;
  std::optional<PreparedOptimizer> optimizer;
  std::optional<decltype(std::declval<Accelerator&>().prepare(data_loader(samples(), {})))> loader;
};

void copy_values(const std::shared_ptr<Mlp>& to, const std::shared_ptr<Mlp>& from) {
  const torch::NoGradGuard no_grad;
  const auto values = from->parameters();
  const auto parameters = to->parameters();
  for (size_t i = 0; i < values.size(); ++i) parameters[i].copy_(values[i]);
}

TEST_F(Replicas, ALoopThatTrainsWithoutTheAcceleratorIsRefusedAtTheNextBatch) {
  run(2, [](const Rank& rank) {
    for (const bool zero_grad_last : {false, true}) {
      HalfPorted half;
      int batches = 0;
      const std::string error = usage_error([&] {
        for (auto& batch : *half.loader) {
          ++batches;
          if (!zero_grad_last) half.sgd->zero_grad();
          loss_of(half.net->forward(batch.data), batch.target).backward();
          half.sgd->step();
          if (zero_grad_last) half.sgd->zero_grad();
        }
      });
      EXPECT_EQ(batches, 1) << zero_grad_last;
      EXPECT_THAT(error, AllOf(HasSubstr(kLocalPass), HasSubstr("loader: next batch"),
                               HasSubstr("[rank " + std::to_string(rank.rank) + " of 2]"),
                               HasSubstr("accelerator.no_sync(model)")));
    }
  });
}

TEST_F(Replicas, APlainBackwardIsRefusedAtTheNextForwardPassAndSave) {
  run(2, [](const Rank&) {
    HalfPorted half;
    (*half.model)(ones({2, 6})).sum().backward();
    half.sgd->step();
    half.sgd->zero_grad();
    EXPECT_THAT(usage_error([&] {
                  (*half.model)(ones({2, 6}));
                }),
                AllOf(HasSubstr(kLocalPass), HasSubstr("at   forward")));
    EXPECT_THAT(usage_error([&] { half.accelerator.save_state("unused"); }),
                AllOf(HasSubstr(kLocalPass), HasSubstr("at   save_state")));
    EXPECT_FALSE(std::filesystem::exists("unused"));
  });
}

TEST_F(Replicas, AGradientOfThisRankAloneMayBeLookedAtAndDropped) {
  run(2, [](const Rank& rank) {
    HalfPorted half;
    loss_of((*half.model)(ones({2, 6}) * rank.rank), ones({2, 3})).backward();
    half.optimizer->zero_grad();
    half.train();
  });
}

// The gradients are gone with it; that a step has used them is not.
TEST_F(Replicas, AStepByGradientsOfThisRankAloneIsRefusedAtThePreparedZeroGrad) {
  run(2, [](const Rank& rank) {
    for (const bool of_model : {false, true}) {
      HalfPorted half;
      int batches = 0;
      const std::string error = usage_error([&] {
        for (auto& batch : *half.loader) {
          ++batches;
          loss_of((*half.model)(batch.data), batch.target).backward();
          half.sgd->step();
          if (of_model) {
            half.model->zero_grad();
          } else {
            half.optimizer->zero_grad();
          }
        }
      });
      EXPECT_EQ(batches, 1) << of_model;
      EXPECT_THAT(error, AllOf(HasSubstr("parameter 'first.weight' was changed while it held a "
                                         "gradient of this rank alone"),
                               HasSubstr("at   zero_grad()"),
                               HasSubstr("[rank " + std::to_string(rank.rank) + " of 2]"),
                               HasSubstr("accelerator.no_sync(model)")));
    }
  });
}

// Gradients of the input, as for adversarial samples: the parameters get some too.
TEST_F(Replicas, PlainPassesAreForgottenOnceTheirGradientsAreDropped) {
  run(2, [](const Rank&) {
    HalfPorted half;
    for (int pass = 0; pass < 2; ++pass) {
      for (auto& batch : *half.loader) {
        const at::Tensor input = batch.data.clone().requires_grad_();
        loss_of((*half.model)(input), batch.target).backward();
        half.optimizer->zero_grad();
        half.accelerator.backward(loss_of((*half.model)(input + input.grad()), batch.target));
        half.optimizer->step();
        half.optimizer->zero_grad();
        half.optimizer->zero_grad();
      }
    }
  });
}

TEST_F(Replicas, PassesInsideNoSyncMayBePlain) {
  run(2, [](const Rank& rank) {
    HalfPorted half;
    for (int pass = 0; pass < 2; ++pass) {
      {
        const auto local = half.accelerator.no_sync(*half.model);
        loss_of((*half.model)(ones({2, 6}) * rank.rank), ones({2, 3})).backward();
      }
      half.train();  // its first pass brings these gradients together with its own
    }
  });
}

TEST_F(Replicas, OneProcessTrainsAsItLikes) {
  run(1, [](const Rank&) {
    HalfPorted half;
    for (auto& batch : *half.loader) {
      half.sgd->zero_grad();
      loss_of(half.net->forward(batch.data), batch.target).backward();
      half.sgd->step();
    }
  });
}

// A change on one rank alone, which no gradient tells of.
TEST_F(Replicas, ParametersThatDifferAreFoundAtTheEndOfThePass) {
  spawn(2, [](const Rank& rank) {
    HalfPorted half;
    half.train();
    int batches = 0;
    for (auto& batch : *half.loader) {
      half.accelerator.backward(loss_of((*half.model)(batch.data), batch.target));
      half.optimizer->step();
      half.optimizer->zero_grad();
      if (++batches == 2 && rank.rank == 1) {
        const torch::NoGradGuard no_grad;
        half.net->second->bias.add_(0.01);
      }
    }
    half.accelerator.wait_for_everyone();  // the first at the end learns of it here
  });
  expect_one_error_on_all(
      2, AllOf(HasSubstr("the ranks hold different parameters: 'second.bias' of "
                         "model 0 differs between rank "),
               HasSubstr("the end of a pass over the data"), HasSubstr("check_replicas = false")));
}

// With rank 0 goes the store, but not what it has left there.
TEST_F(Replicas, ParametersThatDifferAreFoundAlsoWhereRankZeroHasLeft) {
  spawn(2, [](const Rank& rank) {
    HalfPorted half;
    half.train();
    int batches = 0;
    for (auto& batch : *half.loader) {
      half.accelerator.backward(loss_of((*half.model)(batch.data), batch.target));
      half.optimizer->step();
      half.optimizer->zero_grad();
      if (++batches < 4 || rank.rank == 0) continue;
      const torch::NoGradGuard no_grad;
      half.net->second->bias.add_(0.01);
      std::this_thread::sleep_for(std::chrono::seconds(2));
    }
  });
  EXPECT_EQ(exit_code_of(0), 0);
  EXPECT_EQ(exit_code_of(1), kExitUsageError);
  EXPECT_THAT(error_of(1), HasSubstr("'second.bias' of model 0 differs between rank 0 and rank 1"));
}

TEST_F(Replicas, WhatCannotBeComparedBecauseRankZeroHasLeftIsToldOnce) {
  spawn(2, [](const Rank& rank) {
    HalfPorted half;
    half.train();
    if (rank.rank == 0) return;
    std::this_thread::sleep_for(std::chrono::seconds(2));
    for (int pass = 0; pass < 2; ++pass) {
      for (auto& batch : *half.loader) (void)half.net->forward(batch.data);
    }
  });
  EXPECT_EQ(exit_code_of(0), 0);
  EXPECT_EQ(exit_code_of(1), 0);
  const std::string text = output_of(1);
  const size_t told = text.find("rank 0 has gone, and with it what the ranks compare");
  EXPECT_NE(told, std::string::npos) << text;
  EXPECT_EQ(text.find("rank 0 has gone", told + 1), std::string::npos) << text;
}

// The one that is ahead waits in a backward pass; of the two behind it, one finds the difference
// first, and both throw what that one says.
TEST_F(Replicas, ADifferenceThatSeveralRanksFindIsOneErrorOnAll) {
  spawn(3, [](const Rank& rank) {
    HalfPorted half;
    half.train();
    {
      const torch::NoGradGuard no_grad;
      if (rank.rank != 1) half.net->second->bias.add_(0.01 * (1 + rank.rank));
    }
    half.train();
    half.train();
  });
  expect_one_error_on_all(3, HasSubstr("'second.bias' of model 0 differs between rank "));
}

TEST_F(Replicas, ParametersThatDifferAreFoundWhenTheyAreSavedOnAllRanks) {
  run(3, [](const Rank& rank) {
    HalfPorted half;
    half.train();
    {
      const torch::NoGradGuard no_grad;
      if (rank.rank == 2) half.net->first->weight.mul_(1.001);
    }
    EXPECT_THAT(usage_error([&] { half.accelerator.save_state("unused"); }),
                AllOf(HasSubstr("'first.weight' of model 0 differs between rank 0 and rank 2"),
                      HasSubstr("at   save_state")));
    EXPECT_FALSE(std::filesystem::exists("unused"));
    half.accelerator.wait_for_everyone();
  });
}

// What all ranks do alike stays legal.
TEST_F(Replicas, EqualChangesOnAllRanksAreNoDifference) {
  const std::string folder = testing::TempDir() + "equal_changes_" + std::to_string(getpid());
  run(2, [&](const Rank&) {
    HalfPorted half;
    std::vector<at::Tensor> averages;
    for (const at::Tensor& parameter : half.net->parameters()) {
      averages.push_back(parameter.detach().clone());
    }
    for (int pass = 0; pass < 3; ++pass) {
      for (auto& batch : *half.loader) {
        half.accelerator.backward(loss_of((*half.model)(batch.data), batch.target));
        half.optimizer->step();
        half.optimizer->zero_grad();
        const torch::NoGradGuard no_grad;
        const auto parameters = half.net->parameters();
        for (size_t i = 0; i < parameters.size(); ++i) {
          parameters[i].clamp_(-0.4, 0.4);                  // a critic of a WGAN
          averages[i].lerp_(parameters[i], 0.1);            // a moving average
          if (pass == 1) parameters[i].copy_(averages[i]);  // and its use
        }
      }
    }
    half.accelerator.save_model(*half.model, folder);
    half.train();
    load_checkpoint_in_model(*half.net, folder);  // on all ranks
    half.train();
    half.accelerator.save_state(folder + "/state");
    half.accelerator.load_state(folder + "/state");
    half.train();
  });
  std::filesystem::remove_all(folder);
}

// Nobody else comes to the end of such a pass.
TEST_F(Replicas, ARankMayRunAPassAlone) {
  run(2, [](const Rank& rank) {
    HalfPorted half;
    for (int epoch = 0; epoch < 3; ++epoch) {
      half.train();
      if (rank.rank == 0) {
        const torch::NoGradGuard no_grad;
        for (auto& batch : *half.loader) (void)half.net->forward(batch.data);
      }
    }
    for (auto& batch : *half.loader) (void)half.net->forward(batch.data);
    half.accelerator.wait_for_everyone();
  });
}

// Batches until one rank has no more; `after` each of them.
void train_joined(
    HalfPorted& half, int batches, const std::function<void(int)>& after = [](int) {}) {
  half.accelerator.join_uneven_inputs(
      [&] {
        for (int batch = 0; batch < batches; ++batch) {
          const StepData data = data_of_step(batch, 2);
          half.accelerator.backward(loss_of((*half.model)(data.input), data.target));
          half.optimizer->step();
          half.optimizer->zero_grad();
          after(batch);
        }
      },
      {}, *half.model);
}

// One rank has taken part in more reductions than the other by four, which a pass has too: the
// ends of their passes are not to be mixed up.
TEST_F(Replicas, PassesAfterAJoinAreComparedWithTheSameOnesOfTheOthers) {
  run(2, [](const Rank& rank) {
    HalfPorted half;
    train_joined(half, rank.rank == 0 ? 5 : 1);
    for (int pass = 0; pass < 4; ++pass) half.train();
    train_joined(half, rank.rank == 0 ? 1 : 5);
    for (int pass = 0; pass < 4; ++pass) half.train();
  });
}

TEST_F(Replicas, ParametersThatDifferAfterAJoinAreFoundAtTheEndOfThePass) {
  spawn(2, [](const Rank& rank) {
    HalfPorted half;
    train_joined(half, 1 + rank.rank * 2);
    half.train();
    {
      const torch::NoGradGuard no_grad;
      if (rank.rank == 1) half.net->second->bias.add_(0.01);
    }
    half.train();
    half.accelerator.wait_for_everyone();  // the first at the end learns of it here
  });
  expect_one_error_on_all(2, AllOf(HasSubstr("'second.bias' of model 0 differs between rank "),
                                   HasSubstr("the end of a pass over the data")));
}

// Of the ranks that had data to the end; one that ran out earlier holds what it had then.
TEST_F(Replicas, ParametersThatDifferInAJoinAreFoundAtItsEndOnAllRanks) {
  run(3, [](const Rank& rank) {
    HalfPorted half;
    const std::string error = usage_error([&] {
      train_joined(half, rank.rank == 0 ? 1 : 3, [&](int batch) {
        const torch::NoGradGuard no_grad;
        if (rank.rank == 2 && batch == 1) half.net->second->bias.add_(0.01);
      });
    });
    EXPECT_THAT(error, AllOf(HasSubstr("'second.bias' of model 0 differs between rank 1 and "
                                       "rank 2"),
                             HasSubstr("at   the end of join_uneven_inputs")));
    half.accelerator.wait_for_everyone();
  });
}

constexpr const char* kNoModel =
    "no prepared model holds this parameter, so nobody averages its gradients";

// Each rank its own numbers.
at::Tensor own_input(int rank) { return ones({2, 6}) * (rank + 1); }

TEST_F(Replicas, AnOptimizerWhoseModelWasForgottenIsRefusedAtItsFirstStep) {
  spawn(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    torch::manual_seed(3);
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto optimizer = accelerator.prepare(sgd);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      accelerator.backward(net->forward(own_input(rank.rank)).sum());
      optimizer.step();
    }
    accelerator.wait_for_everyone();
  });
  expect_one_error_on_all(
      2,
      AllOf(HasSubstr("the gradient of parameter "), HasSubstr(" of optimizer 0 differs between"),
            HasSubstr(kNoModel), HasSubstr("give the model of these parameters to prepare()"),
            HasSubstr("at   step")));
}

TEST_F(Replicas, AnOptimizerThatHoldsASecondModelToo) {
  spawn(2, [](const Rank& rank) {
    HalfPorted half;
    auto other = std::make_shared<Mlp>();
    half.sgd->add_param_group(torch::optim::OptimizerParamGroup(other->parameters()));
    for (auto& batch : *half.loader) {
      half.accelerator.backward(loss_of((*half.model)(batch.data), batch.target) +
                                other->forward(own_input(rank.rank)).sum());
      half.optimizer->step();
      half.optimizer->zero_grad();
    }
    half.accelerator.wait_for_everyone();
  });
  expect_one_error_on_all(2, AllOf(HasSubstr("the gradient of parameter "), HasSubstr(kNoModel)));
}

// The first step of all ranks is the same: here the parameters tell.
TEST_F(Replicas, ParametersWithoutAModelAreComparedAtTheEndOfThePassAndWhenSaved) {
  for (const std::string where : {"the end of a pass over the data", "save_state", "save_model"}) {
    const StateFolder folder;
    spawn(2, [&](const Rank& rank) {
      Accelerator accelerator(on_cpu());
      torch::manual_seed(3);
      auto net = std::make_shared<Mlp>();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [optimizer, loader] =
          accelerator.prepare(sgd, data_loader(samples(), {.batch_size = 2}));
      const bool loops = where == "the end of a pass over the data";
      const auto train = [&, &optimizer = optimizer](int step) {
        optimizer.zero_grad();
        accelerator.backward(net->forward(own_input(step == 0 ? 0 : rank.rank)).sum());
        optimizer.step();
      };
      for (int step = 0; !loops && step < 2; ++step) train(step);
      int step = 0;
      if (loops) {
        for (auto& batch : loader) {
          (void)batch;
          train(step++);
        }
      } else if (where == "save_state") {
        accelerator.save_state(folder / "state");
      } else {
        auto other = accelerator.prepare(std::make_shared<Mlp>());
        accelerator.save_model(other, folder / "model");
      }
      accelerator.wait_for_everyone();
    });
    expect_one_error_on_all(2, AllOf(HasSubstr(" of optimizer 0 differs between rank "),
                                     HasSubstr(kNoModel), HasSubstr("at   " + where)));
    EXPECT_FALSE(std::filesystem::exists(folder / "state"));
    EXPECT_FALSE(std::filesystem::exists(folder / "model"));
  }
}

TEST_F(Replicas, ParametersWithoutAModelMayBeTrainedAlikeOnAllRanks) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    for (const bool averages : {false, true}) {
      Accelerator accelerator(on_cpu());
      torch::manual_seed(3);
      auto net = std::make_shared<Mlp>();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [optimizer, loader] =
          accelerator.prepare(sgd, data_loader(samples(), {.batch_size = 2}));
      for (auto& batch : loader) {
        (void)batch;
        accelerator.backward(net->forward(own_input(averages ? rank.rank : 0)).sum());
        for (at::Tensor& parameter : net->parameters()) {
          if (!averages || !parameter.grad().defined()) continue;
          parameter.mutable_grad() = accelerator.reduce(parameter.grad(), ReduceOp::kMean);
        }
        optimizer.step();
        optimizer.zero_grad();
      }
      accelerator.save_state(folder / "state");
      // A model that is prepared late takes its parameters over.
      auto model = accelerator.prepare(net);
      accelerator.backward(model(own_input(rank.rank)).sum());
      optimizer.step();
      accelerator.save_state(folder / "state");
    }
  });
}

TEST_F(Replicas, GradientsThatARankAssignsAreRefusedAtTheFirstStep) {
  spawn(2, [](const Rank& rank) {
    HalfPorted half;
    half.train();
    for (at::Tensor& parameter : half.net->parameters()) {
      parameter.mutable_grad() = torch::full_like(parameter, rank.rank + 1);
    }
    half.optimizer->step();
    half.accelerator.wait_for_everyone();
  });
  expect_one_error_on_all(2, AllOf(HasSubstr("the gradient of parameter "),
                                   HasSubstr("accelerator.backward(loss) has not run since the "
                                             "last step"),
                                   HasSubstr("at   step")));
  run(2, [](const Rank&) {  // alike on all ranks
    HalfPorted half;
    for (int step = 0; step < 2; ++step) {
      for (at::Tensor& parameter : half.net->parameters()) {
        parameter.mutable_grad() = torch::ones_like(parameter);
      }
      half.optimizer->step();
      half.train();
    }
  });
}

TEST_F(Replicas, AModelThatWasTrainedByHalfIsNotSaved) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    HalfPorted half;
    half.net->forward(own_input(rank.rank)).sum().backward();
    half.sgd->step();
    EXPECT_THAT(usage_error([&] { half.accelerator.save_model(*half.model, folder / "model"); }),
                AllOf(HasSubstr(kLocalPass), HasSubstr("at   save_model")));
    half.sgd->zero_grad();
    EXPECT_FALSE(std::filesystem::exists(folder / "model"));
    half.accelerator.wait_for_everyone();
  });
  run(2, [&](const Rank& rank) {
    HalfPorted half;
    {
      const torch::NoGradGuard no_grad;
      if (rank.rank == 1) half.net->first->weight.mul_(1.001);
    }
    EXPECT_THAT(usage_error([&] { half.accelerator.save_model(*half.model, folder / "model"); }),
                AllOf(HasSubstr("'first.weight' of model 0 differs between rank 0 and rank 1"),
                      HasSubstr("at   save_model")));
    EXPECT_FALSE(std::filesystem::exists(folder / "model"));
    half.accelerator.wait_for_everyone();
  });
}

TEST_F(Replicas, TheCheckCanBeSwitchedOff) {
  run(2, [](const Rank& rank) {
    HalfPorted half({.check_replicas = false});
    for (auto& batch : *half.loader) {
      half.sgd->zero_grad();
      loss_of(half.net->forward(batch.data * (1 + rank.rank)), batch.target).backward();
      half.sgd->step();
    }
  });
}

TEST_F(Replicas, LocalSgdMayLetTheRanksDiffer) {
  run(2, [](const Rank&) {
    HalfPorted half;
    for (int pass = 0; pass < 2; ++pass) {
      LocalSgd local(half.accelerator, *half.model, {.local_sgd_steps = 3});
      for (auto& batch : *half.loader) {
        loss_of((*half.model)(batch.data), batch.target).backward();
        half.sgd->step();
        half.sgd->zero_grad();
        local.step();
      }
    }
    half.train();
  });
}

TEST_F(Replicas, ZeroGradOfOneOptimizerDoesNotExcuseTheGradientsOfAnother) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    torch::manual_seed(3);
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD body(net->first->parameters(), 0.1), head(net->second->parameters(), 0.1);
    auto [model, body_optimizer, head_optimizer] = accelerator.prepare(net, body, head);
    net->forward(ones({2, 6}) * (rank.rank + 1)).sum().backward();
    head_optimizer.zero_grad();
    EXPECT_THAT(usage_error([&, &step = body_optimizer] { step.step(); }),
                HasSubstr("the gradients are those of this rank alone"));
    body_optimizer.zero_grad();
    body_optimizer.step();  // nothing is left to step with
  });
}

TEST_F(Replicas, WeightsThatAreLoadedAgainAreTrainedTogether) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    const auto trained = [&](const std::string& load) {
      HalfPorted half;
      const std::string file = (folder / (load + ".pt")).string();
      if (rank.rank == 0) torch::save(half.net, file);
      half.accelerator.wait_for_everyone();
      if (load == "own") torch::load(half.net, file);
      if (load == "prepared") torch::load(*half.model, file);
      half.train();
      if (load == "own") torch::load(half.net, file);
      if (load == "prepared") torch::load(*half.model, file);
      if (load == "none") copy_values(half.net, HalfPorted().net);
      for (int step = 0; step < 3; ++step) {  // without a loader
        const StepData data = data_of_step(step, 2 * kRows);
        half.accelerator.backward(loss_of((*half.model)(rows_of(data.input, rank.rank)),
                                          rows_of(data.target, rank.rank)));
        half.optimizer->step();
        half.optimizer->zero_grad();
      }
      return flat(half.net->parameters());
    };
    const auto expected = trained("none");
    EXPECT_EQ(trained("own"), expected);
    EXPECT_EQ(trained("prepared"), expected);
  });
}

// Two loads in a row, and of a part of the model, which the memory of a parameter tells.
TEST_F(Replicas, WeightsThatAreLoadedTwiceInARowAreTrainedTogether) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    HalfPorted half;
    const std::string file = (folder / "second.pt").string();
    if (rank.rank == 0) torch::save(half.net->second, file);
    half.accelerator.wait_for_everyone();
    for (int pass = 0; pass < 3; ++pass) {
      half.train();
      for (int load = 0; load < 2; ++load) torch::load(half.net->second, file);
      half.accelerator.backward((*half.model)(ones({2, 6}) * rank.rank).sum());
      const at::Tensor own = half.net->second->weight.grad().clone();
      at::Tensor mean = own.clone();
      half.accelerator.communicator().all_reduce(mean, ReduceOp::kMean);
      EXPECT_TRUE(own.equal(mean)) << pass;
      half.optimizer->zero_grad();
    }
  });
}

// Evaluation with other weights that set_() puts in place and takes away again: the parameters get
// back the memory that they had, but not the nodes that their gradients go through.
TEST_F(Replicas, WeightsThatAreExchangedAndPutBackAreTrainedTogether) {
  run(2, [](const Rank& rank) {
    HalfPorted half;
    for (const bool by_others : {true, false, true}) {
      half.train();
      {
        const torch::NoGradGuard no_grad;
        std::vector<at::Tensor> backup;
        for (at::Tensor& parameter : half.net->parameters()) {
          backup.push_back(parameter.detach());
          parameter.set_(by_others ? torch::ones_like(parameter) : parameter.detach());
        }
        (void)half.net->forward(ones({2, 6}));
        for (size_t i = 0; i < backup.size(); ++i) half.net->parameters()[i].set_(backup[i]);
      }
      half.accelerator.backward((*half.model)(ones({2, 6}) * (1 + rank.rank)).sum());
      for (const at::Tensor& parameter : half.net->parameters()) {
        at::Tensor mean = parameter.grad().clone();
        half.accelerator.communicator().all_reduce(mean, ReduceOp::kMean);
        EXPECT_TRUE(parameter.grad().equal(mean)) << by_others;
      }
      half.optimizer->zero_grad();
    }
  });
}

TEST_F(Replicas, AForwardPassOfLoadedWeightsThatBypassesTheModelIsRefused) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    HalfPorted half;
    const std::string file = (folder / "net.pt").string();
    if (rank.rank == 0) torch::save(half.net, file);
    half.accelerator.wait_for_everyone();
    torch::load(half.net, file);
    const at::Tensor loss = half.net->forward(ones({2, 6})).sum();
    EXPECT_THAT(usage_error([&] { half.accelerator.backward(loss); }),
                HasSubstr("was loaded again (torch::load, set_())"));
  });
}

TEST_F(Replicas, ModelsThatFollowEachOtherAreNotTakenForOne) {
  run(2, [](const Rank&) {
    HalfPorted fold;
    for (int number = 0; number < 3; ++number) {
      fold.train();  // throws if its model is compared with that of an earlier fold
      fold.accelerator.free_memory();
      fold.net = std::make_shared<Mlp>();
      fold.sgd = std::make_shared<torch::optim::SGD>(fold.net->parameters(), 0.1);
      fold.model.emplace(fold.accelerator.prepare(fold.net));
      fold.optimizer.emplace(fold.accelerator.prepare(fold.sgd));
      fold.loader.emplace(fold.accelerator.prepare(data_loader(samples(), {.batch_size = 2})));
    }
  });
}

}  // namespace
}  // namespace accelerate::test
