// Strategies of users, and that training goes by them.
#include "install/consumer/strategies/averaging_strategy.h"
#include "install/consumer/strategies/sharded_optimizer_strategy.h"
#include "multiproc/state_folder.h"
#include "multiproc/strategy/join_training.h"
#include "multiproc/strategy/own_strategy.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(OwnStrategy, ThatAveragesParametersTrainsAsDdpDoesByPlainSgd) {
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [](const Rank& rank) {
      const auto train = [&](Accelerator& accelerator) {
        torch::manual_seed(3 + rank.rank);  // rank 0 decides
        auto net = std::make_shared<Mlp>();
        auto [optimizer, model] =
            accelerator.prepare(torch::optim::SGD(net->parameters(), 0.1), net);
        for (int step = 0; step < 4; ++step) {
          const StepData data = data_of_step(step, kRows * rank.world_size);
          accelerator.backward(
              loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank)));
          optimizer.step();
          optimizer.zero_grad();
        }
        return flat(net->parameters());
      };
      Accelerator own(with_strategy(std::make_shared<strategies::Averaging>()));
      Accelerator usual(on_cpu());
      EXPECT_EQ(own.strategy_name(), "averaging");
      const std::vector<double> averaged = train(own);
      EXPECT_TRUE(near(averaged, train(usual)));
      EXPECT_TRUE(same_on_all_ranks(own, {torch::tensor(averaged)}));
    });
  }
}

TEST_F(OwnStrategy, IsSavedAndResumed) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(with_strategy(std::make_shared<strategies::Averaging>()));
    auto net = std::make_shared<Mlp>();
    auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
    const auto step = [&, &model = model, &optimizer = optimizer] {
      accelerator.backward(model(torch::full({1, 6}, 1.0 + rank.rank, test_device())).sum());
      optimizer.step();
      optimizer.zero_grad();
      return flat(net->parameters());
    };
    step();
    accelerator.save_state(folder / "state");
    const std::vector<double> next = step();
    accelerator.load_state(folder / "state");
    EXPECT_EQ(step(), next);
  });
}

// A net whose matrices no number of ranks divides evenly, and its AdamW in two groups.
struct AdamwTraining {
  explicit AdamwTraining(StrategyOptions strategy)
      : accelerator(with_strategy(std::move(strategy))) {
    torch::manual_seed(5);
    net = std::make_shared<Mlp>(7);
    std::vector<torch::optim::OptimizerParamGroup> groups{
        torch::optim::OptimizerParamGroup(net->first->parameters()),
        torch::optim::OptimizerParamGroup(net->second->parameters())};
    groups[1].set_options(std::make_unique<torch::optim::AdamWOptions>(0.02));
    auto prepared =
        accelerator.prepare(torch::optim::AdamW(groups, torch::optim::AdamWOptions(0.05)), net);
    optimizer.emplace(std::get<0>(prepared));
    model.emplace(std::get<1>(prepared));
  }
  // Steps on 12 rows of all ranks together.
  std::vector<double> train(int first, int last) {
    const int64_t rows = 12 / accelerator.num_processes();
    for (int step = first; step < last; ++step) {
      const StepData data = data_of_step(step, 12);
      const int rank = accelerator.process_index();
      accelerator.backward(
          loss_of((*model)(rows_of(data.input, rank, rows)), rows_of(data.target, rank, rows)));
      norms.push_back(accelerator.clip_grad_norm_(net->parameters(), 0.1).item<double>());
      optimizer->step();
      optimizer->zero_grad();
    }
    return flat(net->parameters());
  }

  Accelerator accelerator;
  std::shared_ptr<Mlp> net;
  std::optional<PreparedOptimizer> optimizer;
  std::optional<PreparedModel<Mlp>> model;
  std::vector<double> norms;
};

TEST_F(OwnStrategy, ThatShardsTheStateOfTheOptimizerTrainsAsDdpDoes) {
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [](const Rank&) {
      AdamwTraining own(std::make_shared<strategies::ShardedOptimizerFactory>());
      AdamwTraining usual(AutoStrategy{});
      EXPECT_TRUE(near(own.train(0, 5), usual.train(0, 5)));
      EXPECT_TRUE(near(own.norms, usual.norms));
    });
  }
}

TEST_F(OwnStrategy, KeepsPiecesThatAnyNumberOfRanksResumes) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    AdamwTraining own(std::make_shared<strategies::ShardedOptimizerFactory>());
    own.train(0, 3);
    own.accelerator.save_state(folder / "pieces");
    SaveTicket ticket = own.accelerator.save_state(folder / "beside", {.async = true});
    own.train(3, 4);  // while it is written
    ticket.wait();
    if (rank.rank == 0) {
      const SafetensorsFile pieces(folder / "pieces" / "optimizer_pieces_1.safetensors");
      EXPECT_TRUE(pieces.contains("0.3.exp_avg"));
      // Of rows of 7 elements it has the end of one and another one.
      EXPECT_EQ(pieces.info("0.2.exp_avg").shape, (std::vector<int64_t>{1, 2}));
      EXPECT_EQ(pieces.info("0.2.exp_avg/1").shape, (std::vector<int64_t>{1, 7}));
    }
    AdamwTraining usual(AutoStrategy{});
    usual.train(0, 3);
    usual.accelerator.save_state(folder / "whole");
  });
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [&](const Rank&) {
      const std::vector<double> expected = AdamwTraining(AutoStrategy{}).train(0, 6);
      for (const char* saved : {"pieces", "beside", "whole"}) {
        AdamwTraining own(std::make_shared<strategies::ShardedOptimizerFactory>());
        own.accelerator.load_state(folder / saved);
        EXPECT_TRUE(near(own.train(3, 6), expected)) << saved;
        EXPECT_EQ(own.optimizer->step_count(), 6);
        AdamwTraining usual(AutoStrategy{});
        usual.accelerator.load_state(folder / saved);
        EXPECT_TRUE(near(usual.train(3, 6), expected)) << saved;
      }
    });
  }
}

TEST_F(OwnStrategy, KeepsPiecesOfTheGroupsThatItWasGiven) {
  const StateFolder folder;
  run(2, [&](const Rank&) {
    AdamwTraining own(std::make_shared<strategies::ShardedOptimizerFactory>());
    own.train(0, 1);
    own.accelerator.save_state(folder / "state");
    Accelerator other(on_cpu());
    auto net = std::make_shared<Mlp>(7);
    auto prepared = other.prepare(net, torch::optim::AdamW(net->parameters(), 0.05));
    std::string error;
    try {
      other.load_state(folder / "state");
    } catch (const CheckpointError& refused) {
      error = refused.what();
    }
    EXPECT_THAT(error, HasSubstr("the groups of the optimizer have other numbers of parameters"));
  });
}

TEST_F(OwnStrategy, MustKnowHowToJoinUnevenInputs) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(with_strategy(std::make_shared<strategies::Averaging>()));
    EXPECT_THAT(usage_error([&] { accelerator.join_uneven_inputs([] {}); }),
                AllOf(HasSubstr("[rank " + std::to_string(rank.rank) + " of 2]"),
                      HasSubstr("the strategy \"averaging\" cannot join ranks with different "
                                "numbers of batches")));
  });
  run(1, [](const Rank&) {
    Accelerator accelerator(with_strategy(std::make_shared<strategies::Averaging>()));
    int runs = 0;
    accelerator.join_uneven_inputs([&] { ++runs; });
    EXPECT_EQ(runs, 1);
  });
}

TEST_F(OwnStrategy, IsChosenByOptionsThatDoNotContradictEachOther) {
  run(2, [](const Rank&) {
    EXPECT_EQ(Accelerator{with_strategy(AutoStrategy{})}.strategy_name(), "ddp");
    EXPECT_EQ(Accelerator{with_strategy(DdpOptions{.static_graph = true})}.strategy_name(), "ddp");
    EXPECT_THAT(usage_error([] { Accelerator{with_strategy(SingleOptions{})}; }),
                HasSubstr("SingleOptions for 2 processes"));
    AcceleratorOptions both = on_cpu({.static_graph = true});
    both.strategy = DdpOptions{};
    EXPECT_THAT(usage_error([&] { Accelerator{both}; }),
                HasSubstr("options of DDP beside a strategy that is named"));
  });
  run(1, [](const Rank&) {
    EXPECT_EQ(Accelerator{with_strategy(SingleOptions{})}.strategy_name(), "single");
    EXPECT_EQ(Accelerator{with_strategy(DdpOptions{})}.strategy_name(), "single");
    EXPECT_THAT(usage_error([] { Accelerator{with_strategy(std::shared_ptr<StrategyFactory>())}; }),
                HasSubstr("the strategy is a null pointer"));
    struct Empty final : StrategyFactory {
      std::unique_ptr<Strategy> make(const StrategyContext&) const override { return nullptr; }
    };
    EXPECT_THAT(usage_error([] { Accelerator{with_strategy(std::make_shared<Empty>())}; }),
                HasSubstr("the factory made no strategy"));
  });
}

}  // namespace
}  // namespace accelerate::test
