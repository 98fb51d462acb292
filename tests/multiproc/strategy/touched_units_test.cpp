// Parameters in shards over several ranks, gathered when operations touch them.
#include "residency/touch/touched_units.h"

#include <accelerate/autocast.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "multiproc/group.h"
#include "residency/touch/group_gatherer.h"
#include "residency/touch/unit_choice.h"
#include "residency/touch/unit_gradients.h"

namespace accelerate::test {
namespace {

using residency::GroupGatherer;
using residency::TouchedUnits;
using residency::UnitGradients;
using testing::AllOf;
using testing::HasSubstr;

struct TouchedRanks : Ranks {
  void expect_orders_told(const std::string& first, const std::string& second) {
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(exit_code_of(rank), kExitUsageError);
      EXPECT_THAT(error_of(rank), AllOf(HasSubstr("gather parameters in different orders"),
                                        HasSubstr("gathers '" + first + "'"),
                                        HasSubstr("gathers '" + second + "'")));
    }
    EXPECT_LT(elapsed(), std::chrono::minutes(1));
  }
};

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("norm", norm);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(at::Tensor x) {
    const auto batch = x.size(0);
    const auto length = x.size(1);
    const at::Tensor parts = qkv(norm(x)).view({batch, length, 3, 4, 8}).permute({2, 0, 3, 1, 4});
    const at::Tensor mixed =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    x = x + out(mixed.transpose(1, 2).reshape({batch, length, 32}));
    return x + down(torch::gelu(up(norm(x))));
  }
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({32})};
  torch::nn::Linear qkv{32, 96}, out{32, 32}, up{32, 128}, down{128, 32};
};
TORCH_MODULE(Block);

struct TiedModelImpl : torch::nn::Module {
  TiedModelImpl() {
    register_module("tokens", tokens);
    register_module("blocks", blocks);
    register_module("norm", norm);
    for (int i = 0; i < 4; ++i) blocks->push_back(Block());
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = tokens(ids);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return torch::nn::functional::linear(norm(x), tokens->weight);
  }
  torch::nn::Embedding tokens{40, 32};
  torch::nn::ModuleList blocks{};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({32})};
};
TORCH_MODULE(TiedModel);

TiedModel tied_model() {
  torch::manual_seed(11);
  TiedModel model;
  model->to(test_device());
  return model;
}

at::Tensor loss_of(TiedModel& model, int64_t begin, int64_t rows, int step, bool autocast) {
  torch::manual_seed(100 + step);
  const at::Tensor ids = torch::randint(40, {4, 6}).narrow(0, begin, rows).to(test_device());
  const at::Tensor targets = torch::randint(40, {4, 6}).narrow(0, begin, rows).to(test_device());
  AutocastOptions options;
  options.enabled = autocast;
  at::Tensor out;
  {
    const Autocast scope(test_device().type(), at::kBFloat16, options);
    out = model->forward(ids);
  }
  return torch::nn::functional::cross_entropy(out.to(at::kFloat).reshape({-1, 40}),
                                              targets.reshape({-1}));
}

// A loop in which each rank keeps shards and their gradients, by hand.
struct ShardedTraining {
  ShardedTraining(TiedModel of, std::shared_ptr<Communicator> group)
      : model(std::move(of)),
        ranks(std::move(group)),
        units(residency::units_by_structure(*model), ranks->rank(), ranks->world_size(),
              std::make_shared<GroupGatherer>(ranks, ranks, 0), {}),
        gradients(units, [this](size_t unit) { reduce(unit); }) {
    std::vector<at::Tensor> pieces;
    for (size_t unit = 0; unit < units.size(); ++unit) {
      for (size_t i = 0; i < units.unit(unit).parameters.size(); ++i) {
        pieces.push_back(units.piece(unit, i));
      }
    }
    optimizer =
        std::make_unique<torch::optim::SGD>(pieces, torch::optim::SGDOptions(0.1).momentum(0.9));
  }

  void reduce(size_t unit) {
    const torch::NoGradGuard no_grad;
    const auto& layout = units.layout(unit);
    at::Tensor row = torch::zeros({layout.whole_numel()}, test_device());
    const auto& parameters = units.unit(unit).parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      row.narrow(0, layout.begin(i), parameters[i].numel())
          .copy_(parameters[i].grad().reshape({-1}));
      parameters[i].mutable_grad().reset();
    }
    const at::Tensor mean = ranks->reduce_scatter(row, ReduceOp::kMean);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto piece = layout.piece(i, ranks->rank());
      if (!piece) continue;
      units.piece(unit, i).mutable_grad() = mean.narrow(0, piece->place, piece->numel()).clone();
    }
    units.gradient_done(unit);
  }

  float step(int number, bool autocast) {
    const int64_t rows = 4 / ranks->world_size();
    gradients.begin_pass();
    const at::Tensor loss = loss_of(model, ranks->rank() * rows, rows, number, autocast);
    loss.backward();
    EXPECT_TRUE(gradients.end_pass().empty());
    units.release_all();
    optimizer->step();
    units.shards_changed();
    at::Tensor mean = loss.detach().clone();
    ranks->all_reduce(mean, ReduceOp::kMean);
    return mean.item<float>();
  }

  TiedModel model;
  std::shared_ptr<Communicator> ranks;
  TouchedUnits units;
  UnitGradients gradients;
  std::unique_ptr<torch::optim::SGD> optimizer;
};

void expect_training_of_one_process(int world_size, bool autocast, double tolerance) {
  ProcessState state = ProcessState::from_environment({.cpu = !tests_on_gpu()});
  auto ranks = std::make_shared<Communicator>(state, patient());
  TiedModel plain = tied_model();
  torch::optim::SGD optimizer(plain->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  ShardedTraining sharded(tied_model(), ranks);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    at::Tensor loss;  // of the joined batch, part by part as the ranks have it
    for (int rank = 0; rank < world_size; ++rank) {
      const at::Tensor part =
          loss_of(plain, rank * (4 / world_size), 4 / world_size, step, autocast) / world_size;
      part.backward();
      loss = loss.defined() ? loss + part.detach() : part.detach();
    }
    optimizer.step();
    EXPECT_NEAR(sharded.step(step, autocast), loss.item<float>(), tolerance);
  }
  const auto scope = sharded.units.whole();
  const auto expected = plain->parameters();
  const auto actual = sharded.model->parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], 0, tolerance)) << i;
  }
}

TEST_F(TouchedRanks, TrainTheParametersOfOneProcess) {
  run(2, [](const Rank&) { expect_training_of_one_process(2, false, 1e-5); });
}

TEST_F(TouchedRanks, FourTrainTheParametersOfOneProcess) {
  run(4, [](const Rank&) { expect_training_of_one_process(4, false, 1e-5); });
}

TEST_F(TouchedRanks, TrainTheParametersOfOneProcessUnderAutocast) {
  run(2, [](const Rank&) { expect_training_of_one_process(2, true, 2e-3); });
}

TEST_F(TouchedRanks, WhatOneRankWroteIsWrittenOnAll) {
  run(3, [](const Rank& rank) {
    ProcessState state = ProcessState::from_environment({.cpu = !tests_on_gpu()});
    auto ranks = std::make_shared<Communicator>(state, patient());
    TiedModel model = tied_model();
    TouchedUnits units(residency::units_by_structure(*model), rank.rank, 3,
                       std::make_shared<GroupGatherer>(ranks, ranks, 0), {});
    const torch::NoGradGuard no_grad;
    {
      auto scope = units.whole({}, {.write_back = true, .from_rank = 1});
      if (rank.rank == 1) model->tokens->weight.fill_(7);
      scope.end();
    }
    EXPECT_TRUE(same(model->tokens->weight.sum(), torch::tensor(7.0F * 40 * 32)));
    units.give_back();
    EXPECT_TRUE(same(model->tokens->weight, torch::full({40, 32}, 7.0F)));
  });
}

TEST_F(TouchedRanks, ThatGatherUnitsOfOneLengthInDifferentOrdersAreTold) {
  spawn(2, [](const Rank& rank) {
    ProcessState state = ProcessState::from_environment({.cpu = !tests_on_gpu()});
    auto ranks = std::make_shared<Communicator>(state, patient());
    TiedModel model = tied_model();
    TouchedUnits units(residency::units_by_structure(*model), rank.rank, 2,
                       std::make_shared<GroupGatherer>(ranks, ranks, 0), {});
    const torch::NoGradGuard no_grad;
    const at::Tensor x = torch::ones({1, 2, 32}, test_device());
    model->blocks[0]->as<Block>()->forward(x);
    model->blocks[rank.rank == 0 ? 1 : 2]->as<Block>()->forward(x);
    ranks->barrier();
  });
  expect_orders_told("blocks.1", "blocks.2");
}

TEST_F(TouchedRanks, ThatGatherUnitsOfDifferentLengthsAreTold) {
  spawn(2, [](const Rank& rank) {
    ProcessState state = ProcessState::from_environment({.cpu = !tests_on_gpu()});
    auto ranks = std::make_shared<Communicator>(state, patient());
    TiedModel model = tied_model();
    TouchedUnits units(residency::units_by_structure(*model), rank.rank, 2,
                       std::make_shared<GroupGatherer>(ranks, ranks, 0), {});
    const torch::NoGradGuard no_grad;
    if (rank.rank == 0) {
      model->blocks[0]->as<Block>()->forward(torch::ones({1, 2, 32}, test_device()));
    } else {
      torch::embedding(model->tokens->weight, torch::zeros({1}, at::kLong).to(test_device()));
    }
    ranks->barrier();
  });
  expect_orders_told("blocks.0", "rest");
}

// After the first steps not every gather is compared.
TEST_F(TouchedRanks, ThatLeaveAKnownOrderAreToldAtTheEndOfThePassAtTheLatest) {
  spawn(2, [](const Rank& rank) {
    ProcessState state = ProcessState::from_environment({.cpu = !tests_on_gpu()});
    auto ranks = std::make_shared<Communicator>(state, patient());
    TiedModel model = tied_model();
    auto gatherer = std::make_shared<GroupGatherer>(ranks, ranks, 0);
    TouchedUnits units(residency::units_by_structure(*model), rank.rank, 2, gatherer, {});
    const torch::NoGradGuard no_grad;
    const at::Tensor x = torch::ones({1, 2, 32}, test_device());
    for (int pass = 0; pass < 30; ++pass) {
      for (size_t block = 0; block < 4; ++block) {
        const bool leaves = pass == 25 && block > 1 && rank.rank == 1;
        model->blocks[leaves ? 5 - block : block]->as<Block>()->forward(x);
      }
      units.release_all();
      gatherer->compare_order("the end of the pass");
    }
    ranks->barrier();
  });
  expect_orders_told("blocks.2", "blocks.3");
}

}  // namespace
}  // namespace accelerate::test
