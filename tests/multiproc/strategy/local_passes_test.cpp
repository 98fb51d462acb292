// Passes that bypass the accelerator do not train the ranks apart, and right ones are left in
// peace.
#include "multiproc/strategy/replicas.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct LocalPasses : Replicas {};

TEST_F(LocalPasses, ALoopThatTrainsWithoutTheAcceleratorIsRefusedAtTheNextBatch) {
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

TEST_F(LocalPasses, APlainBackwardIsRefusedAtTheNextForwardPassAndSave) {
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

TEST_F(LocalPasses, ALoopThatEndsBeforeTheNextCallIsToldOfAtTheEndOfTheAccelerator) {
  run(2, [](const Rank&) {
    for (const bool ported : {false, true}) {
      testing::internal::CaptureStderr();
      {
        HalfPorted half;
        for (auto& batch : *half.loader) {
          const at::Tensor loss = loss_of((*half.model)(batch.data), batch.target);
          if (ported) {
            half.accelerator.backward(loss);
            half.optimizer->step();
          } else {
            loss.backward();
            half.sgd->step();
            half.sgd->zero_grad();
          }
          break;
        }
      }
      const std::string told = testing::internal::GetCapturedStderr();
      if (ported) {
        EXPECT_THAT(told, Not(HasSubstr(kLocalPass)));
      } else {
        EXPECT_THAT(told, AllOf(HasSubstr(kLocalPass), HasSubstr("the end of the accelerator")));
      }
    }
  });
}

TEST_F(LocalPasses, AGradientOfThisRankAloneMayBeLookedAtAndDropped) {
  run(2, [](const Rank& rank) {
    HalfPorted half;
    loss_of((*half.model)(ones({2, 6}) * rank.rank), ones({2, 3})).backward();
    half.optimizer->zero_grad();
    half.train();
  });
}

// The gradients are gone with it; that a step has used them is not.
TEST_F(LocalPasses, AStepByGradientsOfThisRankAloneIsRefusedAtThePreparedZeroGrad) {
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
TEST_F(LocalPasses, PlainPassesAreForgottenOnceTheirGradientsAreDropped) {
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

TEST_F(LocalPasses, PassesInsideNoSyncMayBePlain) {
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

TEST_F(LocalPasses, OneProcessTrainsAsItLikes) {
  run(1, [](const Rank&) {
    HalfPorted half;
    for (auto& batch : *half.loader) {
      half.sgd->zero_grad();
      loss_of(half.net->forward(batch.data), batch.target).backward();
      half.sgd->step();
    }
  });
}

TEST_F(LocalPasses, TheCheckCanBeSwitchedOff) {
  run(2, [](const Rank& rank) {
    HalfPorted half({.check_replicas = false});
    for (auto& batch : *half.loader) {
      half.sgd->zero_grad();
      loss_of(half.net->forward(batch.data * (1 + rank.rank)), batch.target).backward();
      half.sgd->step();
    }
  });
}

TEST_F(LocalPasses, LocalSgdMayLetTheRanksDiffer) {
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

TEST_F(LocalPasses, ZeroGradOfOneOptimizerDoesNotExcuseTheGradientsOfAnother) {
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

}  // namespace
}  // namespace accelerate::test
