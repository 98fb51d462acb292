// Schedulers of torch::optim given to prepare(): they move at the pace of the training and are part
// of its state.
#include "multiproc/accumulation.h"
#include "multiproc/loading.h"
#include "multiproc/state_folder.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

AcceleratorOptions one_step_an_update(int64_t window = 1) {
  AcceleratorOptions options = accumulating({.steps = window});
  options.scheduler.pace = SchedulerPace::kPerOptimizerStep;
  return options;
}

// The rates of the groups after each of `steps` steps that a program without an accelerator makes.
std::vector<double> plain_course(int steps) {
  auto parameter = torch::zeros({1}).requires_grad_();
  torch::optim::SGD sgd({parameter}, 1.0);
  torch::optim::StepLR scheduler(sgd, 1, 0.5);
  std::vector<double> rates;
  for (int step = 0; step < steps; ++step) {
    scheduler.step();
    rates.push_back(sgd.param_groups()[0].options().get_lr());
  }
  return rates;
}

double rate_of(torch::optim::Optimizer& optimizer) {
  return optimizer.param_groups()[0].options().get_lr();
}

// One micro-batch of a loop that calls everything after every batch.
void micro_batch(Accelerator& accelerator, PreparedModel<Mlp>& model, PreparedOptimizer& optimizer,
                 PreparedScheduler& scheduler) {
  const StepData data = data_of_step(0, 4);
  const auto part = accelerator.accumulate(model);
  accelerator.backward(loss_of(model(data.input), data.target));
  optimizer.step();
  scheduler.step();
  optimizer.zero_grad();
}

struct TorchSchedulers : Ranks {
  StateFolder folder;
};

TEST_F(TorchSchedulers, MoveWithTheUpdatesAndNotWithTheMicroBatches) {
  run(1, [](const Rank&) {
    Accelerator accelerator(one_step_an_update(4));
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 1.0);
    torch::optim::StepLR halving(sgd, 1, 0.5);
    auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, halving);
    static_assert(std::is_same_v<decltype(scheduler), PreparedScheduler>);
    for (int batch = 0; batch < 12; ++batch) micro_batch(accelerator, model, optimizer, scheduler);
    EXPECT_EQ(rate_of(sgd), plain_course(3).back());
    EXPECT_EQ(rate_of(sgd), 0.25);
    EXPECT_THAT(scheduler.last_lr(), ElementsAre(0.25));
    EXPECT_EQ(scheduler.scheduler().step_count(), 3);
    EXPECT_TRUE(scheduler.scheduler().is_adapted());
    EXPECT_EQ(scheduler.scheduler().optimizer_if_known(), &sgd);
  });
}

TEST_F(TorchSchedulers, MoveOneStepForEachProcess) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 1.0);
    // In whatever order they are given.
    auto [scheduler, model, optimizer] =
        accelerator.prepare(std::make_unique<torch::optim::StepLR>(sgd, 1, 0.5), net, sgd);
    for (int batch = 0; batch < 3; ++batch) micro_batch(accelerator, model, optimizer, scheduler);
    EXPECT_EQ(rate_of(sgd), plain_course(6).back());
  });
}

TEST_F(TorchSchedulers, StandStillWhereTheirOwnOptimizerLeftItsStepOut) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = one_step_an_update();
    options.mixed_precision = "fp16";
    options.grad_scaler.init_scale = 8;
    Accelerator accelerator(options);
    auto one = fresh_net(), other = fresh_net();
    torch::optim::SGD first(one->parameters(), 1.0);
    torch::optim::SGD second(other->parameters(), 1.0);  // with the same rate
    torch::optim::StepLR of_first(first, 1, 0.5), of_second(second, 1, 0.5);
    auto [good, bad, good_optimizer, bad_optimizer, good_scheduler, bad_scheduler] =
        accelerator.prepare(one, other, first, second, of_first, of_second);
    const StepData data = data_of_step(0, 4);
    for (int step = 0; step < 2; ++step) {
      accelerator.backward(loss_of(good(data.input), data.target));
      accelerator.backward(loss_of(bad(data.input), data.target) *
                           std::numeric_limits<float>::infinity());
      good_optimizer.step();
      bad_optimizer.step();
      good_scheduler.step();
      bad_scheduler.step();
      good_optimizer.zero_grad();
      bad_optimizer.zero_grad();
    }
    // Asking waits for a GPU, after which the schedules have moved too.
    EXPECT_FALSE(good_optimizer.step_was_skipped());
    EXPECT_TRUE(bad_optimizer.step_was_skipped());
    EXPECT_EQ(rate_of(first), 0.5);
    EXPECT_EQ(rate_of(second), 1.0);
    EXPECT_EQ(bad_scheduler.scheduler().step_count(), 0);
  });
}

TEST_F(TorchSchedulers, ThatAreAlsoSteppedByHandAreRefused) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(one_step_an_update(4));
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 1.0);
    torch::optim::StepLR halving(sgd, 1, 0.5);
    halving.step();  // before prepare() it is on its own
    auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, halving);
    for (int batch = 0; batch < 4; ++batch) micro_batch(accelerator, model, optimizer, scheduler);
    accelerator.save_state(folder / "state");
    accelerator.load_state(folder / "state");
    halving.step();  // as in a loop that was ported by half, in every micro-batch
    const auto refusal = AllOf(HasSubstr("step() was called on the scheduler given to prepare()"),
                               HasSubstr("call step() of what prepare() returned"));
    EXPECT_THAT(thrown_by<UsageError>([&] { scheduler.step(); }), refusal);
    EXPECT_THAT(thrown_by<UsageError>([&] { accelerator.save_state(folder / "state"); }), refusal);
    EXPECT_EQ(rate_of(sgd), plain_course(3).back());
  });
}

TEST_F(TorchSchedulers, GoOnWhereTheyWereSaved) {
  run(2, [&](const Rank&) {
    const auto train = [&](int before, int after) {
      Accelerator accelerator(one_step_an_update());
      auto net = fresh_net();
      torch::optim::SGD sgd(net->parameters(), 1.0);
      torch::optim::StepLR scheduler_of_torch(sgd, 3, 0.5);
      auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, scheduler_of_torch);
      std::vector<double> rates;
      const auto steps = [&, &model = model, &optimizer = optimizer,
                          &scheduler = scheduler](int count) {
        for (int step = 0; step < count; ++step) {
          micro_batch(accelerator, model, optimizer, scheduler);
          rates.push_back(rate_of(sgd));
        }
      };
      if (before > 0) {
        steps(before);
        accelerator.save_state(folder / "state");
      } else {
        accelerator.load_state(folder / "state");
        rates.push_back(rate_of(sgd));
      }
      steps(after);
      return rates;
    };
    const auto whole = train(5, 4);
    const auto resumed = train(0, 4);
    EXPECT_EQ(resumed, std::vector<double>(whole.begin() + 4, whole.end()));
    EXPECT_EQ(resumed, (std::vector<double>{0.5, 0.5, 0.25, 0.25, 0.25}));
  });
}

TEST_F(TorchSchedulers, AnOptimizerThatIsGoneIsNotReadAnyMore) {
  run(1, [&](const Rank&) {
    Accelerator accelerator(one_step_an_update());
    auto net = fresh_net();
    auto optimizer =
        accelerator.prepare(std::make_shared<torch::optim::SGD>(net->parameters(), 1.0));
    torch::optim::StepLR of_first(optimizer, 1, 0.5);
    auto scheduler = accelerator.prepare(of_first);
    optimizer.step();
    scheduler.step();
    auto other = fresh_net();
    optimizer = accelerator.prepare(std::make_shared<torch::optim::SGD>(other->parameters(), 1.0));
    accelerator.save_state(folder / "state");  // a sanitizer sees what is read
    EXPECT_FALSE(std::filesystem::exists(folder / "state" / "scheduler.bin"));
    EXPECT_THROW(scheduler.step(), UsageError);
    EXPECT_EQ(rate_of(static_cast<torch::optim::SGD&>(optimizer.optimizer())), 1.0);
  });
}

// Down by its own factor, which changes.
struct Falling : torch::optim::LRScheduler {
  explicit Falling(torch::optim::Optimizer& optimizer) : LRScheduler(optimizer) {}
  std::vector<double> get_lrs() override {
    std::vector<double> rates = get_current_lrs();
    for (double& rate : rates) rate *= factor;
    factor /= 2;
    return rates;
  }
  double factor = 0.5;
};

struct SavedFalling : Falling {
  using Falling::Falling;
  StateDict state_dict() const { return {{"factor", factor}}; }
  void load_state_dict(const StateDict& state) {
    if (refuses) throw std::runtime_error("not today");
    factor = state.at("factor").as_number();
  }
  bool refuses = false;
};

TEST_F(TorchSchedulers, OfClassesWithMoreStateSaveThatToo) {
  run(1, [&](const Rank&) {
    Accelerator accelerator(one_step_an_update());
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 1.0);
    SavedFalling falling(sgd);
    auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, falling);
    for (int step = 0; step < 2; ++step) micro_batch(accelerator, model, optimizer, scheduler);
    accelerator.save_state(folder / "state");
    for (int step = 0; step < 3; ++step) micro_batch(accelerator, model, optimizer, scheduler);
    const double end = rate_of(sgd);
    accelerator.load_state(folder / "state");
    EXPECT_EQ(falling.factor, 0.125);
    EXPECT_EQ(rate_of(sgd), 0.125);
    EXPECT_EQ(scheduler.scheduler().step_count(), 2);
    for (int step = 0; step < 3; ++step) micro_batch(accelerator, model, optimizer, scheduler);
    EXPECT_EQ(rate_of(sgd), end);
  });
}

TEST_F(TorchSchedulers, ThatRefuseTheirStateLeaveEverythingAsItWas) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(one_step_an_update());
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 1.0);
    SavedFalling falling(sgd);
    auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, falling);
    accelerator.save_state(folder / "state");
    micro_batch(accelerator, model, optimizer, scheduler);
    const auto parameters = flat(net->parameters());
    falling.refuses = rank.rank == 1;
    EXPECT_THAT(
        thrown_by<CheckpointError>([&] { accelerator.load_state(folder / "state"); }),
        AllOf(HasSubstr("scheduler 0 refuses its state: not today"), HasSubstr("scheduler.bin")));
    EXPECT_EQ(falling.factor, 0.25);
    EXPECT_EQ(rate_of(sgd), 0.5);
    EXPECT_EQ(scheduler.scheduler().step_count(), 1);
    EXPECT_EQ(flat(net->parameters()), parameters);
  });
}

TEST_F(TorchSchedulers, WithoutASavedStateAreToldOfOnce) {
  spawn(1, [&](const Rank&) {
    Accelerator accelerator(one_step_an_update());
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 1.0);
    Falling falling(sgd);
    torch::optim::StepLR known(sgd, 1);
    SavedFalling saved(sgd);
    auto prepared = accelerator.prepare(net, sgd, falling, known, saved);
    accelerator.save_state(folder / "first");
    accelerator.save_state(folder / "second");
  });
  EXPECT_EQ(exit_code_of(0), 0);
  const std::string output = output_of(0);
  const std::string warning = "::Falling are saved; if it has more state";
  const size_t first = output.find(warning);
  ASSERT_NE(first, std::string::npos) << output;
  EXPECT_EQ(output.find(warning, first + 1), std::string::npos) << output;
  EXPECT_THAT(output, AllOf(Not(HasSubstr("StepLR")), Not(HasSubstr("SavedFalling"))));
}

TEST_F(TorchSchedulers, OfOptimizersThatAreNotPreparedAreRefused) {
  run(1, [](const Rank&) {
    Accelerator accelerator(one_step_an_update());
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 1.0);
    torch::optim::SGD other(net->parameters(), 1.0);
    auto [model, optimizer, scheduler] =
        accelerator.prepare(net, other, torch::optim::StepLR(sgd, 1, 0.5));
    EXPECT_THAT(usage_error([&, &scheduler = scheduler] { scheduler.step(); }),
                AllOf(HasSubstr("a scheduler changes an optimizer that is not prepared"),
                      HasSubstr("give the optimizer to prepare() too")));
    EXPECT_EQ(scheduler.scheduler().optimizer_if_known(), nullptr);
    EXPECT_EQ(rate_of(sgd), 1.0);
    EXPECT_EQ(rate_of(other), 1.0);
  });
}

TEST_F(TorchSchedulers, AreForgottenWithTheirLastHandle) {
  run(1, [&](const Rank&) {
    Accelerator accelerator(one_step_an_update());
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 1.0);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    {
      torch::optim::StepLR gone(sgd, 1, 0.5);
      auto scheduler = accelerator.prepare(gone);
    }
    accelerator.save_state(folder / "state");
    EXPECT_FALSE(std::filesystem::exists(folder / "state" / "scheduler.bin"));
  });
}

}  // namespace
}  // namespace accelerate::test
