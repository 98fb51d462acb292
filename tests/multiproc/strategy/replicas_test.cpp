// Ranks that hold different parameters learn of it.
#include "multiproc/strategy/replicas.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>
#include <tuple>

#include "multiproc/state_folder.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The process of rank 0. Collective.
pid_t first_process(Accelerator& accelerator) {
  const at::Tensor own = at::full({1}, int64_t{getpid()}, at::kLong);
  return static_cast<pid_t>(accelerator.gather(own)[0].item<int64_t>());
}

// Blocks until the process has ended and the test, which asks how, has seen it.
void wait_for_end(pid_t process) {
  while (kill(process, 0) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// A change on one rank alone, which no gradient tells of.
TEST_F(Replicas, ParametersThatDifferAreFoundAtTheEndOfThePass) {
  spawn(2, [](const Rank& rank) {
    HalfPorted half;
    half.train();
    half.train([&](int steps) {
      if (steps == 2 && rank.rank == 1) half.change_bias(0.01);
    });
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
    const pid_t first = first_process(half.accelerator);
    half.train();
    half.train([&](int steps) {
      if (steps < 4 || rank.rank == 0) return;
      half.change_bias(0.01);
      wait_for_end(first);
    });
  });
  EXPECT_EQ(exit_code_of(0), 0);
  EXPECT_EQ(exit_code_of(1), kExitUsageError);
  EXPECT_THAT(error_of(1), HasSubstr("'second.bias' of model 0 differs between rank 0 and rank 1"));
}

TEST_F(Replicas, WhatCannotBeComparedBecauseRankZeroHasLeftIsToldOnce) {
  spawn(2, [](const Rank& rank) {
    HalfPorted half;
    const pid_t first = first_process(half.accelerator);
    half.train();
    if (rank.rank == 0) return;
    wait_for_end(first);
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
    if (rank.rank != 1) half.change_bias(0.01 * (1 + rank.rank));
    half.train();
    half.train();
  });
  expect_one_error_on_all(3, HasSubstr("'second.bias' of model 0 differs between rank "));
}

TEST_F(Replicas, ParametersThatDifferAreFoundWhenTheyAreSavedOnAllRanks) {
  run(3, [](const Rank& rank) {
    HalfPorted half;
    half.train();
    if (rank.rank == 2) half.scale_weight(1.001);
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
        half.train_on(batch.data, batch.target);
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
          half.train_on(data.input, data.target);
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
    if (rank.rank == 1) half.change_bias(0.01);
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
        if (rank.rank == 2 && batch == 1) half.change_bias(0.01);
      });
    });
    EXPECT_THAT(error, AllOf(HasSubstr("'second.bias' of model 0 differs between rank 1 and "
                                       "rank 2"),
                             HasSubstr("at   the end of join_uneven_inputs")));
    half.accelerator.wait_for_everyone();
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
    if (rank.rank == 1) half.scale_weight(1.001);
    EXPECT_THAT(usage_error([&] { half.accelerator.save_model(*half.model, folder / "model"); }),
                AllOf(HasSubstr("'first.weight' of model 0 differs between rank 0 and rank 1"),
                      HasSubstr("at   save_model")));
    EXPECT_FALSE(std::filesystem::exists(folder / "model"));
    half.accelerator.wait_for_everyone();
  });
}

TEST_F(Replicas, ModelsThatFollowEachOtherAreNotTakenForOne) {
  run(2, [](const Rank&) {
    HalfPorted fold;
    for (int number = 0; number < 3; ++number) {
      fold.train();  // throws if its model is compared with that of an earlier fold
      fold.accelerator.free_memory();
      fold.prepare();
    }
  });
}

// The next pass of that rank would be shuffled otherwise than that of the others.
TEST_F(Replicas, APassOverAPreparedLoaderThatOneRankMadeAloneIsToldOf) {
  run(2, [](const Rank& rank) {
    for (const bool is_alone : {false, true}) {
      HalfPorted half;
      half.train();
      if (rank.rank == 0 || !is_alone) {
        for (const auto& batch : *half.loader) std::ignore = batch;
      }
      testing::internal::CaptureStderr();
      half.train();
      half.train();
      const std::string text = testing::internal::GetCapturedStderr();
      const size_t told = text.find("make passes over prepared loaders on all ranks");
      const bool is_told = told != std::string::npos;
      EXPECT_EQ(half.accelerator.reduce(is_told ? 1 : 0), is_alone ? 1 : 0) << text;
      EXPECT_TRUE(!is_told || text.find("was epoch") < told) << text;
    }
  });
}

}  // namespace
}  // namespace accelerate::test
