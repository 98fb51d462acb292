// Parameters that are trained without a prepared model.
#include "multiproc/state_folder.h"
#include "multiproc/strategy/replicas.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct UnownedParameters : Replicas {};

constexpr const char* kNoModel =
    "no prepared model holds this parameter, so nobody averages its gradients";
constexpr const char* kNotAveraged =
    "accelerator.backward(loss) has not averaged it since the last step";

TEST_F(UnownedParameters, AnOptimizerWhoseModelWasForgottenIsRefusedAtItsFirstStep) {
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

TEST_F(UnownedParameters, AnOptimizerThatHoldsASecondModelToo) {
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
TEST_F(UnownedParameters, ParametersWithoutAModelAreComparedAtTheEndOfThePassAndWhenSaved) {
  for (const std::string where : {"the end of a pass over the data", "save_state", "save_model"}) {
    const StateFolder folder;
    spawn(2, [&](const Rank& rank) {
      Accelerator accelerator(on_cpu());
      torch::manual_seed(3);
      auto net = std::make_shared<Mlp>();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [optimizer, loader] =
          accelerator.prepare(sgd, data_loader(replica_samples(), {.batch_size = 2}));
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

TEST_F(UnownedParameters, ParametersWithoutAModelMayBeTrainedAlikeOnAllRanks) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    for (const bool averages : {false, true}) {
      Accelerator accelerator(on_cpu());
      torch::manual_seed(3);
      auto net = std::make_shared<Mlp>();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [optimizer, loader] =
          accelerator.prepare(sgd, data_loader(replica_samples(), {.batch_size = 2}));
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

TEST_F(UnownedParameters, GradientsThatARankAssignsAreRefusedAtTheFirstStep) {
  spawn(2, [](const Rank& rank) {
    HalfPorted half;
    half.train();
    for (at::Tensor& parameter : half.net->parameters()) {
      parameter.mutable_grad() = torch::full_like(parameter, rank.rank + 1);
    }
    half.optimizer->step();
    half.accelerator.wait_for_everyone();
  });
  expect_one_error_on_all(2, AllOf(HasSubstr("the gradient of parameter "), HasSubstr(kNotAveraged),
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

// As those of a discriminator, of which the pass of the generator knows nothing.
TEST_F(UnownedParameters, GradientsThatStayedOnTheirRankAreRefusedThoughAPassOfAnotherModelCame) {
  spawn(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    torch::manual_seed(3);
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [other, model, optimizer] = accelerator.prepare(std::make_shared<Mlp>(), net, sgd);
    {
      const auto alone = accelerator.no_sync(model);
      accelerator.backward(model(own_input(rank.rank)).sum());
    }
    accelerator.backward(other(own_input(rank.rank)).sum());
    optimizer.step();
    accelerator.wait_for_everyone();
  });
  expect_one_error_on_all(2, AllOf(HasSubstr("the gradient of parameter "), HasSubstr(kNotAveraged),
                                   HasSubstr("at   step")));
}

}  // namespace
}  // namespace accelerate::test
