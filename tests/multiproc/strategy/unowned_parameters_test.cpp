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

TEST_F(UnownedParameters, ALossIsRefusedWhereNothingWasPreparedThatItCouldTrain) {
  spawn(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    torch::manual_seed(3);
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto loader = accelerator.prepare(data_loader(replica_samples(), {.batch_size = 2}));
    for (auto& batch : loader) {
      sgd.zero_grad();
      accelerator.backward(loss_of(net->forward(batch.data), batch.target));
      sgd.step();
    }
  });
  expect_one_error_on_all(2, AllOf(HasSubstr("no model was prepared"), HasSubstr("at   backward"),
                                   HasSubstr("give the model and its optimizer to prepare()")));
  run(1, [](const Rank&) {  // there is nobody to average with
    Accelerator accelerator(on_cpu());
    accelerator.backward(std::make_shared<Mlp>()->forward(own_input(0)).sum());
  });
}

// What a loop writes to standard error.
template <class Loop>
std::string told_by(Loop loop) {
  testing::internal::CaptureStderr();
  loop();
  return testing::internal::GetCapturedStderr();
}

TEST_F(UnownedParameters, ASecondModelThatWasNotPreparedIsToldOfOnce) {
  run(2, [](const Rank& rank) {
    HalfPorted half;
    auto other = std::make_shared<Mlp>();
    torch::optim::SGD other_sgd(other->parameters(), 0.1);
    const std::string text = told_by([&] {
      for (int step = 0; step < 4; ++step) {
        half.accelerator.backward((*half.model)(own_input(0)).sum() +
                                  other->forward(own_input(rank.rank)).sum());
        other_sgd.step();
        other_sgd.zero_grad();
      }
    });
    const std::string wanted = "gradients for " + std::to_string(other->parameters().size()) +
                               " tensors that no prepared model or optimizer holds";
    const size_t first = text.find(wanted);
    EXPECT_EQ(first != std::string::npos, rank.rank == 0) << text;
    EXPECT_EQ(text.find("that no prepared model", first + wanted.size()), std::string::npos)
        << text;
  });
}

TEST_F(UnownedParameters, InputsThatNeedAGradientAreNotTakenForParameters) {
  run(2, [](const Rank& rank) {
    HalfPorted half;
    auto kept = own_input(rank.rank).requires_grad_();
    const std::string text = told_by([&] {
      for (int step = 0; step < 4; ++step) {
        auto fresh = (own_input(rank.rank) * (step + 1)).requires_grad_();
        half.accelerator.backward(((*half.model)(fresh) + (*half.model)(kept)).sum());
      }
    });
    EXPECT_EQ(text, "");
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
