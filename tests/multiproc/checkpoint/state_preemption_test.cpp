// A signal to any rank stops all of them after the same step.
#include <csignal>

#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct Preemption : Ranks {};

AcceleratorOptions watching(const PreemptionOptions& preemption) {
  AcceleratorOptions options = on_cpu();
  options.preemption = preemption;
  return options;
}

TEST_F(Preemption, ASignalToOneRankIsSeenByAllAtTheSameStep) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(watching({.signals = {SIGTERM, SIGUSR1}}));
    for (int step = 0; step < 5; ++step) {
      if (step == 3 && rank.rank == 1) std::raise(SIGUSR1);
      EXPECT_EQ(accelerator.should_checkpoint_and_exit(), step >= 3) << "step " << step;
    }
    EXPECT_EQ(accelerator.preemption_exit_code(), 75);
  });
}

TEST_F(Preemption, WithoutSignalsNobodyIsAsked) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    // Not collective then: one rank alone may ask.
    if (rank.rank == 0) {
      EXPECT_FALSE(accelerator.should_checkpoint_and_exit());
    }
  });
}

volatile std::sig_atomic_t seen_by_own_handler = 0;

TEST_F(Preemption, TheHandlerThatWasThereIsCalledAndComesBack) {
  run(1, [](const Rank&) {
    std::signal(SIGUSR2, [](int) { seen_by_own_handler = seen_by_own_handler + 1; });
    {
      Accelerator accelerator(watching({.signals = {SIGUSR2}}));
      std::raise(SIGUSR2);
      EXPECT_EQ(seen_by_own_handler, 1);
      EXPECT_TRUE(accelerator.should_checkpoint_and_exit());
      // Another accelerator begins anew.
      Accelerator other(watching({.signals = {SIGUSR2}}));
      EXPECT_FALSE(other.should_checkpoint_and_exit());
      std::raise(SIGUSR2);
      EXPECT_TRUE(other.should_checkpoint_and_exit());
    }
    std::raise(SIGUSR2);
    EXPECT_EQ(seen_by_own_handler, 3);
  });
}

TEST_F(Preemption, OptionsThatCannotBeAreRefused) {
  run(1, [](const Rank&) {
    EXPECT_THAT(usage_error([] { Accelerator(watching({.signals = {SIGKILL}})); }),
                HasSubstr("signal 9 cannot be handled by a program"));
    EXPECT_THAT(
        usage_error([] { Accelerator(watching({.signals = {SIGTERM}, .exit_code = 143})); }),
        HasSubstr("exit code 143"));
    EXPECT_THAT(usage_error([] { Accelerator(watching({.exit_code = 0})); }),
                HasSubstr("exit code 0"));
  });
}

}  // namespace
}  // namespace accelerate::test
