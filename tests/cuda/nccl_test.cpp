// Several ranks over NCCL, which share a GPU where there are too few: how groups begin and end, and
// what becomes of them when a rank is lost. Skipped, visibly, without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "accelerate/accelerate.h"
#include "cuda/lone_gpu.h"
#include "support/error_of.h"
#include "support/ranks.h"

namespace accelerate {
namespace {

using std::chrono::seconds;
using test::kUnreachedTimeout;
using test::Rank;
using test::RankOptions;
using test::Ranks;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// What no rank may print, however it ends.
constexpr const char* kLeftOpen = "destroy_process_group() was not called";
constexpr const char* kLeftConnected = "NCCL communicator hasn't been destroyed";

RankOptions sharing(test::Environment more = {}) {
  more.emplace_back("ACCELERATE_SHARE_GPUS", "true");
  return {.environment = std::move(more)};
}

const ProcessGroupOptions kPatient{.timeout = kUnreachedTimeout,
                                   .rendezvous_timeout = kUnreachedTimeout};

struct MlpImpl : torch::nn::Module {
  torch::nn::Linear first{8, 32};
  torch::nn::Linear second{32, 3};
  MlpImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
};
TORCH_MODULE(Mlp);

// Trains on batches of which each rank has its share, and returns all parameters in one row.
std::vector<float> trained(const AcceleratorOptions& options, int64_t batch_size) {
  Accelerator accelerator(options);
  torch::manual_seed(11);
  TensorDataset data{torch::randn({96, 8}), torch::randint(3, {96})};
  torch::manual_seed(7);
  Mlp net;
  torch::optim::AdamW adamw(net->parameters(), 1e-2);
  auto [optimizer, model, loader] = accelerator.prepare(
      adamw, net, data_loader(data, {.batch_size = batch_size, .shuffle = true, .seed = 3}));
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader) {
      optimizer.zero_grad();
      accelerator.backward(torch::nn::functional::cross_entropy(model(batch.data), batch.target));
      optimizer.step();
    }
  }
  std::vector<at::Tensor> rows;
  for (const at::Tensor& parameter : model->parameters()) {
    rows.push_back(parameter.detach().cpu().reshape(-1));
  }
  const at::Tensor row = torch::cat(rows);
  return {row.data_ptr<float>(), row.data_ptr<float>() + row.numel()};
}

// Ranks of which the test asks how they ended and what they printed.
struct Nccl : Ranks {
  // Whether this machine has a GPU, asked in a process that ends with it.
  bool has_gpu() {
    return run_collect(1, [](const Rank&) {
             return std::vector<int>{ProcessState::from_environment().gpu_count()};
           })[0][0] > 0;
  }
  // Starts `world_size` ranks that must end well and leave nothing open.
  void end_well(int world_size, const test::RankBody& body,
                const RankOptions& options = sharing()) {
    spawn(world_size, body, options);
    for (int rank = 0; rank < world_size; ++rank) {
      EXPECT_EQ(exit_code_of(rank), test::kExitPassed) << error_of(rank) << output_of(rank);
      EXPECT_THAT(output_of(rank), AllOf(Not(HasSubstr(kLeftOpen)), Not(HasSubstr(kLeftConnected)),
                                         Not(HasSubstr("terminate called"))));
    }
  }
};

#define SKIP_WITHOUT_GPU() \
  if (!has_gpu()) GTEST_SKIP() << "no GPU"

class NcclRanks : public Nccl, public testing::WithParamInterface<int> {};

TEST_P(NcclRanks, TrainLikeOneRankWithTheJoinedBatch) {
  SKIP_WITHOUT_GPU();
  const int ranks = GetParam();
  const auto several = run_collect(
      ranks,
      [](const Rank& rank) { return trained({.process_group = kPatient}, 32 / rank.world_size); },
      sharing());
  const auto one = run_collect(1, [](const Rank&) { return trained({}, 32); });
  for (int rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(several[rank].size(), one[0].size());
    EXPECT_EQ(several[rank], several[0]) << "rank " << rank;
    for (size_t i = 0; i < one[0].size(); ++i) EXPECT_NEAR(several[rank][i], one[0][i], 1e-4) << i;
  }
}

TEST_P(NcclRanks, EndWithoutAWarningHoweverTheyBegan) {
  SKIP_WITHOUT_GPU();
  for (const char* eager : {"false", "true"}) {
    end_well(
        GetParam(),
        [](const Rank& rank) {
          Accelerator accelerator({.process_group = kPatient});
          const at::Tensor own = torch::full({1 << 20}, rank.rank + 1.0, accelerator.device());
          const double sum = rank.world_size * (rank.world_size + 1) / 2.0;
          EXPECT_EQ(accelerator.reduce(own).max().item<double>(), sum);
          // Nobody waits for the last one.
          at::Tensor last = own.clone();
          accelerator.communicator().all_reduce(last);
        },
        sharing({{"ACCELERATE_EAGER_NCCL", eager}}));
  }
}

INSTANTIATE_TEST_SUITE_P(TwoAndFour, NcclRanks, testing::Values(2, 4));

TEST_F(Nccl, AGroupThatExchangedNothingEndsInOrderToo) {
  SKIP_WITHOUT_GPU();
  end_well(2, [](const Rank&) { const Accelerator accelerator({.process_group = kPatient}); });
}

TEST_F(Nccl, ARankThatLeavesFirstDoesNotDisturbTheLastExchangeOfTheOthers) {
  SKIP_WITHOUT_GPU();
  end_well(2, [](const Rank& rank) {
    at::Tensor tensor;
    {
      Accelerator accelerator({.process_group = kPatient});
      tensor = torch::full({1 << 22}, 1.0, accelerator.device());
      accelerator.communicator().all_reduce(tensor);
      // Rank 1 still works on the device when rank 0 has gone.
      if (rank.rank == 1) {
        at::Tensor square = torch::rand({4096, 4096}, accelerator.device());
        for (int i = 0; i < 50; ++i) square = torch::mm(square, square).clamp(-1, 1);
        accelerator.communicator().broadcast(square, 0);
      } else {
        at::Tensor square = torch::rand({4096, 4096}, accelerator.device());
        accelerator.communicator().broadcast(square, 0);
      }
    }
    EXPECT_EQ(tensor.sum().item<double>(), 2.0 * (1 << 22));
  });
}

TEST_F(Nccl, AnExceptionOnTheWayOutLeavesNothingOpen) {
  SKIP_WITHOUT_GPU();
  end_well(2, [](const Rank&) {
    try {
      Accelerator accelerator({.process_group = kPatient});
      at::Tensor tensor = torch::ones({1 << 20}, accelerator.device());
      accelerator.communicator().all_reduce(tensor);
      throw std::runtime_error("of the program");
    } catch (const std::runtime_error&) {
    }
  });
}

TEST_F(Nccl, ExitFromTheMiddleOfAProgramLeavesNothingOpen) {
  SKIP_WITHOUT_GPU();
  spawn(
      2,
      [](const Rank&) {
        Accelerator accelerator({.process_group = kPatient});
        at::Tensor tensor = torch::ones({1 << 20}, accelerator.device());
        accelerator.communicator().all_reduce(tensor);
        std::exit(23);
      },
      sharing());
  for (const int rank : {0, 1}) {
    EXPECT_EQ(exit_code_of(rank), 23) << output_of(rank);
    EXPECT_THAT(output_of(rank), AllOf(Not(HasSubstr(kLeftOpen)), Not(HasSubstr(kLeftConnected))));
  }
}

TEST_F(Nccl, WorkersOfANotebookEndInOrderToo) {
  SKIP_WITHOUT_GPU();
  RankOptions options = sharing();
  options.launched = false;
  end_well(
      1,
      [](const Rank&) {
        const auto sums = notebook_launcher(
            [] {
              Accelerator accelerator({.process_group = kPatient});
              return accelerator.reduce(torch::ones({8}, accelerator.device()))
                  .sum()
                  .item<double>();
            },
            {.num_processes = 2});
        EXPECT_EQ(sums, (std::vector<double>{16, 16}));
      },
      options);
}

TEST_F(Nccl, FiftyAcceleratorsInOneProcessLeaveNoThreadsAndNoConnectionsBehind) {
  SKIP_WITHOUT_GPU();
  end_well(2, [](const Rank&) {
    const auto count = [](const char* folder) {
      return std::distance(std::filesystem::directory_iterator(folder), {});
    };
    const auto use = [](int times) {
      for (int i = 0; i < times; ++i) {
        Accelerator accelerator({.process_group = kPatient});
        at::Tensor tensor = torch::ones({1024}, accelerator.device());
        accelerator.communicator().all_reduce(tensor);
        EXPECT_EQ(tensor[0].item<double>(), 2.0);
      }
    };
    use(3);  // what is made once
    const auto threads = count("/proc/self/task");
    const auto files = count("/proc/self/fd");
    use(50);
    EXPECT_LE(count("/proc/self/task"), threads + 5);
    EXPECT_LE(count("/proc/self/fd"), files + 5);
  });
}

TEST_F(Nccl, ALostRankWakesAHostThatIsStepsAheadAndEveryLaterCallThrows) {
  SKIP_WITHOUT_GPU();
  spawn(
      3,
      [](const Rank& rank) {
        Accelerator accelerator({.process_group = kPatient});
        Mlp net;
        torch::optim::AdamW adamw(net->parameters(), 1e-2);
        auto [model, optimizer] = accelerator.prepare(net, adamw);
        const at::Tensor input = torch::ones({4, 8}, accelerator.device());
        const auto step = [&, &model = model, &optimizer = optimizer] {
          optimizer.zero_grad();
          const at::Tensor loss = model(input).sum();
          accelerator.backward(loss);
          optimizer.step();
          return loss;
        };
        for (int i = 0; i < 5; ++i) step();
        torch::cuda::synchronize();
        rank.reach(1);
        if (rank.rank == 1) std::this_thread::sleep_for(kUnreachedTimeout);
        // The device waits for rank 1 in the first of these, the host does not.
        at::Tensor loss;
        std::string first;
        try {
          for (int i = 0; i < 4; ++i) loss = step();
          (void)loss.item<double>();  // wakes with whatever is there
        } catch (const CommError& error) {
          first = error.what();
        }
        rank.reach(2);
        if (first.empty()) first = test::error_text<CommError>([&] { step(); });
        EXPECT_THAT(first, HasSubstr("rank 1"));
        EXPECT_THAT(test::error_text<CommError>([&, &optimizer = optimizer] { optimizer.step(); }),
                    HasSubstr("rank 1"));
        EXPECT_THAT(test::error_text<CommError>([&] { accelerator.wait_for_everyone(); }),
                    HasSubstr("rank 1"));
        EXPECT_THAT(test::error_text<CommError>([&] { accelerator.save_state("nowhere"); }),
                    HasSubstr("rank 1"));
        EXPECT_FALSE(std::filesystem::exists("nowhere"));
      },
      sharing());
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(wait_for_stage(rank, 1));
  std::this_thread::sleep_for(seconds(1));  // the survivors come to hang on the device
  kill_rank(1, SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(exit_code_of(rank), test::kExitPassed) << output_of(rank);
    EXPECT_THAT(output_of(rank), AllOf(Not(HasSubstr(kLeftOpen)), Not(HasSubstr(kLeftConnected))));
  }
}

TEST_F(Nccl, ACollectiveThatOneRankNeverCallsTimesOutOnTheDeviceWithACommError) {
  SKIP_WITHOUT_GPU();
  spawn(
      2,
      [](const Rank& rank) {
        Accelerator accelerator(
            {.process_group = {.timeout = seconds(5), .rendezvous_timeout = kUnreachedTimeout}});
        at::Tensor tensor = torch::ones({1024}, accelerator.device());
        accelerator.communicator().all_reduce(tensor);
        torch::cuda::synchronize();
        if (rank.rank == 1) {
          rank.wait_for(0, 1);
        } else {
          accelerator.communicator().all_reduce(tensor);
          torch::cuda::synchronize();  // until the exchange is aborted
          EXPECT_THAT(
              test::error_text<CommError>([&] { accelerator.communicator().all_reduce(tensor); }),
              HasSubstr("rank 1"));
          rank.reach(1);
        }
      },
      sharing());
  EXPECT_EQ(exit_code_of(0), test::kExitPassed) << output_of(0);
  EXPECT_EQ(exit_code_of(1), test::kExitPassed) << output_of(1);
}

// NCCL itself waits in its start for all ranks, however long.
TEST_F(Nccl, ARankThatNeverComesToTheFirstExchangeIsNamedAfterTheTimeout) {
  SKIP_WITHOUT_GPU();
  spawn(
      2,
      [](const Rank& rank) {
        Accelerator accelerator(
            {.process_group = {.timeout = seconds(5), .rendezvous_timeout = kUnreachedTimeout}});
        if (rank.rank == 1) return rank.wait_for(0, 1);
        at::Tensor tensor = torch::ones({1024}, accelerator.device());
        EXPECT_THAT(
            test::error_text<CommError>([&] { accelerator.communicator().all_reduce(tensor); }),
            AllOf(HasSubstr("all_reduce"), HasSubstr("rank 1 did not arrive")));
        rank.reach(1);
      },
      sharing());
  EXPECT_EQ(exit_code_of(0), test::kExitPassed) << output_of(0);
  EXPECT_EQ(exit_code_of(1), test::kExitPassed) << output_of(1);
}

TEST_F(Nccl, ARankThatIsLostWhileTheOthersConnectIsNamedLongBeforeTheTimeout) {
  SKIP_WITHOUT_GPU();
  spawn(
      3,
      [](const Rank& rank) {
        Accelerator accelerator({.process_group = kPatient});
        at::Tensor tensor = torch::ones({1024}, accelerator.device());
        rank.reach(1);
        if (rank.rank == 1) std::this_thread::sleep_for(kUnreachedTimeout);
        EXPECT_THAT(
            test::error_text<CommError>([&] { accelerator.communicator().all_reduce(tensor); }),
            HasSubstr("rank 1 did not arrive: its process has ended"));
      },
      sharing());
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(wait_for_stage(rank, 1));
  std::this_thread::sleep_for(seconds(2));
  kill_rank(1, SIGKILL);
  for (const int rank : {0, 2}) EXPECT_EQ(exit_code_of(rank), test::kExitPassed) << output_of(rank);
  EXPECT_LT(elapsed(), kUnreachedTimeout / 2);
}

TEST_F(Nccl, SettingsOfTheUserAreKeptAndNamed) {
  SKIP_WITHOUT_GPU();
  spawn(
      2,
      [](const Rank&) {
        Accelerator accelerator({.process_group = kPatient});
        EXPECT_STREQ(std::getenv("TORCH_NCCL_ENABLE_MONITORING"), "1");
        EXPECT_STREQ(std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
      },
      sharing({{"TORCH_NCCL_ENABLE_MONITORING", "1"}}));
  EXPECT_EQ(exit_code_of(0), test::kExitPassed) << output_of(0);
  EXPECT_THAT(output_of(0), HasSubstr("TORCH_NCCL_ENABLE_MONITORING=1 is set"));
}

}  // namespace
}  // namespace accelerate
