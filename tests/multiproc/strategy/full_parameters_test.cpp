// What a rank writes to parameters while all are whole: by every strategy, kept by end() on all
// ranks and lost on all without it.
#include "multiproc/prepared_mlp.h"
#include "multiproc/zero/zero_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct FullParametersOfRanks : Ranks {};

struct Way {
  std::string name;
  AcceleratorOptions options;
};

std::vector<Way> ways() {
  std::vector<Way> all = {{"DDP", on_cpu()}, {"flat float32", on_cpu()}, {"flat bf16", on_cpu()}};
  all[1].options.flat = FlatOptions{.dtype = at::kFloat};
  all[2].options.flat = FlatOptions{};
  all[2].options.mixed_precision = "bf16";
  for (const int stage : zero_stages()) {
    all.push_back({"stage " + std::to_string(stage), zero(stage)});
  }
  AcceleratorOptions some_whole = zero(3);
  some_whole.strategy = ZeroOptions{.stage = 3, .units = {.persistence_threshold = 10}};
  all.push_back({"stage 3, some whole", some_whole});
  return all;
}

struct Training {
  explicit Training(const AcceleratorOptions& options)
      : accelerator(options),
        model(accelerator.prepare(net)),
        optimizer(accelerator.prepare(torch::optim::AdamW(net->parameters(), 0.01))) {}

  void train(int first, int last) {
    const int rank = accelerator.process_index();
    for (int step = first; step < last; ++step) {
      const StepData data = data_of_step(step, 2 * kRows);
      accelerator.backward(
          loss_of(model(rows_of(data.input, rank)).to(at::kFloat), rows_of(data.target, rank)));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  void double_parameters() const {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : net->parameters()) parameter.mul_(2);
  }
  std::vector<double> values() const { return values_of(net->parameters()); }
  bool is_same_on_all_ranks() const {
    const at::Tensor own = torch::tensor(values(), at::kDouble);
    at::Tensor first = own.clone();
    accelerator.communicator().broadcast(first, 0);
    return first.equal(own);
  }

  Accelerator accelerator;
  std::shared_ptr<Mlp> net = fresh_net();
  PreparedModel<Mlp> model;
  PreparedOptimizer optimizer;
};

TEST_F(FullParametersOfRanks, KeepWhatOneRankHasWritten) {
  run(2, [](const Rank& rank) {
    for (const Way& way : ways()) {
      Training training(way.options);
      training.train(0, 2);
      std::vector<double> twice = training.values();
      for (double& value : twice) value *= 2;
      auto whole = training.accelerator.full_parameters(training.model,
                                                        {.write_back = true, .from_rank = 1});
      if (rank.rank == 1) training.double_parameters();
      whole.end();
      EXPECT_EQ(training.values(), twice) << way.name;
      training.train(2, 4);
      EXPECT_TRUE(training.is_same_on_all_ranks()) << way.name;
    }
  });
}

TEST_F(FullParametersOfRanks, LoseItOnAllRanksWithoutAnEnd) {
  run(2, [](const Rank& rank) {
    for (const Way& way : ways()) {
      Training training(way.options);
      training.train(0, 2);
      const std::vector<double> before = training.values();
      {
        const auto whole = training.accelerator.full_parameters(
            training.model, {.write_back = true, .from_rank = 1});
        if (rank.rank == 1) training.double_parameters();
      }
      EXPECT_EQ(training.values(), before) << way.name;
      training.train(2, 4);
      EXPECT_TRUE(training.is_same_on_all_ranks()) << way.name;
    }
  });
}

TEST_F(FullParametersOfRanks, AreAskedForAlikeByAllRanks) {
  run(2, [](const Rank& rank) {
    for (const Way& way : ways()) {
      Training training(way.options);
      EXPECT_THAT(usage_error([&] {
                    (void)training.accelerator.full_parameters(
                        training.model, {.write_back = true, .from_rank = rank.rank});
                  }),
                  AllOf(HasSubstr("rank 0 asks for write_back and from_rank 0"),
                        HasSubstr("from_rank 1"), HasSubstr("at   full_parameters")))
          << way.name;
      training.train(0, 1);
    }
  });
}

}  // namespace
}  // namespace accelerate::test
