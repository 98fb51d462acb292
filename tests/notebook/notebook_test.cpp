// What workers that were forked from inside a program can do, and what comes back from them.
#include <accelerate/accelerate.h>
#include <accelerate/notebook.h>
#include <gmock/gmock.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "notebook/shared_numbers.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;

int own_rank() { return std::atoi(std::getenv("RANK")); }

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "unset" : value;
}

TEST(NotebookLauncher, ReturnsWhatEachRankReturnedInRankOrder) {
  const NotebookOptions three{.num_processes = 3, .cpu = true};
  const std::vector<int> numbers = notebook_launcher([] { return own_rank() * 10; }, three);
  EXPECT_THAT(numbers, ElementsAre(0, 10, 20));
  const std::vector<double> halves = notebook_launcher([] { return own_rank() / 2.0; }, three);
  EXPECT_THAT(halves, ElementsAre(0.0, 0.5, 1.0));
  const std::vector<bool> flags = notebook_launcher([] { return own_rank() == 1; }, three);
  EXPECT_THAT(flags, ElementsAre(false, true, false));
  const std::vector<std::string> texts = notebook_launcher(
      [] { return std::string(static_cast<size_t>(own_rank()), 'x') + '\0' + "é"; }, three);
  EXPECT_THAT(texts,
              ElementsAre(std::string("\0é", 3), std::string("x\0é", 4), std::string("xx\0é", 5)));
}

TEST(NotebookLauncher, BringsBackTensorsAndWhatIsBuiltOfThem) {
  const auto tensors = notebook_launcher(
      [] {
        return torch::full({2, own_rank()}, own_rank(), at::kHalf);
      },
      {.num_processes = 2, .cpu = true});
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].sizes(), at::IntArrayRef({2, 0}));
  EXPECT_TRUE(tensors[1].equal(torch::ones({2, 1}, at::kHalf)));

  const auto nested = notebook_launcher(
      [] {
        return std::map<std::string, std::vector<at::Tensor>>{
            {"rank", {torch::tensor(own_rank()), torch::ones({3})}}};
      },
      {.num_processes = 2, .cpu = true});
  EXPECT_EQ(nested.at(1).at("rank").at(0).item<int>(), 1);
  EXPECT_TRUE(nested.at(1).at("rank").at(1).equal(torch::ones({3})));
}

TEST(NotebookLauncher, AResultMayBeLarge) {
  const auto tensors =
      notebook_launcher([] { return torch::arange(5'000'000); }, {.num_processes = 2, .cpu = true});
  EXPECT_TRUE(tensors.at(1).equal(torch::arange(5'000'000)));
}

TEST(NotebookLauncher, AFunctionThatReturnsNothingRunsOnEveryRank) {
  SharedNumbers seen;
  static_assert(std::is_void_v<decltype(notebook_launcher([] {}))>);
  notebook_launcher([&] { seen[static_cast<size_t>(own_rank())] = getpid(); },
                    {.num_processes = 2, .cpu = true});
  EXPECT_NE(seen[0], 0);
  EXPECT_NE(seen[1], 0);
  EXPECT_NE(seen[0], seen[1]);
  EXPECT_NE(seen[0], getpid());
}

TEST(NotebookLauncher, WorkersSeeTheVariablesOfTheCallerAndChangeTheirOwn) {
  int value = 5;
  const auto seen =
      notebook_launcher([&] { return ++value + own_rank(); }, {.num_processes = 2, .cpu = true});
  EXPECT_THAT(seen, ElementsAre(6, 7));
  EXPECT_EQ(value, 5);
}

TEST(NotebookLauncher, AnAcceleratorInsideMeetsTheOthers) {
  const auto gathered = notebook_launcher(
      [] {
        Accelerator accelerator({.cpu = true});
        const at::Tensor own = torch::full({1}, accelerator.process_index() + 1);
        return accelerator.gather(own);
      },
      {.num_processes = 3, .cpu = true});
  for (const at::Tensor& all : gathered) EXPECT_TRUE(all.equal(torch::tensor({1, 2, 3})));
}

TEST(NotebookLauncher, TrainsOneModelOnAllRanks) {
  const auto parameters = notebook_launcher(
      [] {
        Accelerator accelerator({.cpu = true});
        torch::manual_seed(3 + accelerator.process_index());
        torch::nn::Linear line(2, 1);
        torch::optim::SGD sgd(line->parameters(), 0.1);
        auto [model, optimizer] = accelerator.prepare(line, sgd);
        for (int step = 0; step < 3; ++step) {
          optimizer.zero_grad();
          accelerator.backward(model(torch::randn({4, 2})).square().mean());
          optimizer.step();
        }
        return torch::cat({line->weight.detach().flatten(), line->bias.detach()});
      },
      {.num_processes = 2, .cpu = true});
  ASSERT_EQ(parameters.at(0).numel(), 3);
  EXPECT_TRUE(parameters[0].equal(parameters[1]));
}

TEST(NotebookLauncher, WorkersHaveTheEnvironmentOfTheLauncher) {
  setenv("MASTER_PORT", "1", 1);  // of an earlier job of this shell
  const auto environments = notebook_launcher(
      [] {
        std::vector<std::string> values;
        for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                                 "MASTER_ADDR", "ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_CPU",
                                 "OMP_NUM_THREADS", "MASTER_PORT"}) {
          values.push_back(variable(name));
        }
        values.push_back(std::to_string(at::get_num_threads()));
        return values;
      },
      {.num_processes = 2,
       .mixed_precision = "bf16",
       .cpu = true,
       .num_cpu_threads_per_process = 3});
  unsetenv("MASTER_PORT");
  std::vector<std::string> second = environments.at(1);
  const int port = std::atoi(second.at(8).c_str());
  second.erase(second.begin() + 8);
  EXPECT_THAT(second, ElementsAre("1", "1", "2", "2", "127.0.0.1", "bf16", "true", "3", "3"));
  EXPECT_GT(port, 1023);
  EXPECT_EQ(environments.at(0).at(8), environments.at(1).at(8));
}

TEST(NotebookLauncher, MixedPrecisionReachesTheAccelerator) {
  const auto names = notebook_launcher(
      [] { return std::string(Accelerator({.cpu = true}).mixed_precision().name()); },
      {.num_processes = 2, .mixed_precision = MixedPrecision::kBf16, .cpu = true});
  EXPECT_THAT(names, ElementsAre("bf16", "bf16"));
}

TEST(NotebookLauncher, OneProcessRunsInTheCaller) {
  unsetenv("ACCELERATE_MIXED_PRECISION");
  bool ran = false;
  const auto result = notebook_launcher(
      [&] {
        ran = true;
        return variable("ACCELERATE_MIXED_PRECISION") + " " + std::to_string(getpid());
      },
      {.num_processes = 1, .mixed_precision = "bf16"});
  EXPECT_TRUE(ran);
  EXPECT_THAT(result, ElementsAre("bf16 " + std::to_string(getpid())));
  EXPECT_EQ(variable("ACCELERATE_MIXED_PRECISION"), "unset");
}

TEST(NotebookLauncher, OneProcessHasTheThreadsThatAreAskedFor) {
  const int before = at::get_num_threads();
  const auto inside = notebook_launcher(
      [] { return variable("OMP_NUM_THREADS") + " " + std::to_string(at::get_num_threads()); },
      {.num_processes = 1, .num_cpu_threads_per_process = before + 2});
  const std::string asked = std::to_string(before + 2);
  EXPECT_THAT(inside, ElementsAre(asked + " " + asked));
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(NotebookLauncher, OneProcessBeginsAnewAsOftenAsAsked) {
  int runs = 0;
  const auto fail_until = [&](int run) {
    return [&runs, run] {
      const int restarts = ProcessState::from_environment({.cpu = true}).restart_count();
      EXPECT_EQ(restarts, runs);
      if (++runs < run) throw std::out_of_range("run " + std::to_string(runs));
      return runs;
    };
  };
  const NotebookOptions twice{.num_processes = 1, .cpu = true, .max_restarts = 1};
  EXPECT_THAT(notebook_launcher(fail_until(2), twice), ElementsAre(2));
  EXPECT_EQ(variable("RANK"), "unset");
  EXPECT_EQ(variable("TORCHELASTIC_RESTART_COUNT"), "unset");
  runs = 0;
  EXPECT_THROW(notebook_launcher(fail_until(3), twice), std::out_of_range);
  EXPECT_EQ(runs, 2);
}

TEST(DebugLauncher, RunsTwoProcessesOnTheCpuWithoutMixedPrecision) {
  setenv("ACCELERATE_MIXED_PRECISION", "bf16", 1);
  const auto seen = debug_launcher([] {
    Accelerator accelerator;
    return accelerator.device().str() + " " + std::string(accelerator.mixed_precision().name()) +
           " " + std::to_string(accelerator.num_processes());
  });
  unsetenv("ACCELERATE_MIXED_PRECISION");
  EXPECT_THAT(seen, ElementsAre("cpu no 2", "cpu no 2"));
  EXPECT_EQ(debug_launcher([] { return own_rank(); }, 4).size(), 4u);
}

// OpenMP's threads of the caller do not exist in a worker, which must not wait for them. The
// workers compute what the caller did: log(exp(1)) is not 1 on every processor.
TEST(NotebookLauncher, ParallelOperationsWorkAfterTheCallerHasUsedThem) {
  const int before = at::get_num_threads();
  at::set_num_threads(4);
  const at::Tensor matrix = torch::ones({400, 400});
  const auto work = [&] {
    double total = 0;
    for (int i = 0; i < 20; ++i) {
      total += torch::ones({1 << 22}).exp().log().sum().item<double>();
      total += matrix.mm(matrix)[1][1].item<double>();
    }
    torch::nn::Linear line(400, 400);
    line(matrix).square().mean().backward();
    return total + at::get_num_threads();
  };
  const double expected = work();
  EXPECT_NEAR(expected, 20.0 * ((1 << 22) + 400) + 4, 20.0);
  const auto totals =
      notebook_launcher(work, {.num_processes = 2, .cpu = true, .num_cpu_threads_per_process = 4});
  at::set_num_threads(before);
  EXPECT_THAT(totals, ElementsAre(expected, expected));
}

}  // namespace
}  // namespace accelerate::test
