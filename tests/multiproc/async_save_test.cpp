// Saving beside the training.
#include <fstream>

#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct AsyncSave : Ranks, testing::WithParamInterface<int> {
  StateFolder folder;
  void run_ranks(const RankBody& body) { run(GetParam(), body); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, AsyncSave, testing::Values(1, 3),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(AsyncSave, HoldsTheStateOfTheMomentWhileTrainingGoesOn) {
  run_ranks([&](const Rank&) {
    const ResumeCase what{.accumulation = 3};
    ResumeTraining whole(what, 7);
    const auto losses = whole.train(0, 12);
    ResumeTraining training(what, 7);
    std::vector<SaveTicket> tickets;
    EXPECT_EQ(training.train(0, 12,
                             [&](int done) {
                               tickets.push_back(training.accelerator().save_state(
                                   folder / std::to_string(done), {.async = true}));
                             }),
              losses);
    for (const SaveTicket& ticket : tickets) {
      ticket.wait();
      EXPECT_TRUE(ticket.done());
      EXPECT_TRUE(std::filesystem::exists(ticket.directory() / "manifest.json"));
    }
    for (const int done : {1, 5, 9}) {
      ResumeTraining resumed(what, 1000);
      resumed.accelerator().load_state(folder / std::to_string(done));
      EXPECT_EQ(resumed.train(done, 12), std::vector<double>(losses.begin() + done, losses.end()));
    }
  });
}

TEST_P(AsyncSave, TheAcceleratorWaitsForItsLastSave) {
  run_ranks([&](const Rank&) {
    {
      ResumeTraining training({}, 7);
      training.train(0, 2);
      training.accelerator().save_state(folder / "last", {.async = true});
    }
    EXPECT_TRUE(std::filesystem::exists(folder / "last" / "manifest.json"));
  });
}

TEST_P(AsyncSave, AnErrorComesOutOfTheTicketAndOfTheNextSave) {
  run_ranks([&](const Rank& rank) {
    ResumeTraining training({}, 7);
    Accelerator& accelerator = training.accelerator();
    const int failing = rank.world_size - 1;
    const std::string file = "random_states_" + std::to_string(failing) + ".pkl";
    auto hook = accelerator.register_save_state_pre_hook(
        [&](auto&, const std::filesystem::path& directory) {
          if (rank.rank == failing) std::filesystem::create_directory(directory / file);
        });
    const SaveTicket ticket = accelerator.save_state(folder / "state", {.async = true});
    EXPECT_THAT(thrown_by<CheckpointError>([&] { ticket.wait(); }), HasSubstr(file));
    accelerator.save_state(folder / "other", {.async = true});
    hook.remove();
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.save_state(folder / "state"); }),
                HasSubstr(file));
    accelerator.save_state(folder / "state");
    EXPECT_TRUE(std::filesystem::exists(folder / "state" / "manifest.json"));
    EXPECT_FALSE(std::filesystem::exists(folder / "other"));
  });
}

TEST_P(AsyncSave, ASecondSaveCanBeRefusedWhileOneWrites) {
  run_ranks([&](const Rank&) {
    Accelerator accelerator(on_cpu());
    // Large enough to be still at it.
    auto model = accelerator.prepare(torch::nn::Linear(4000, 4000));
    const SaveTicket ticket = accelerator.save_state(folder / "large", {.async = true});
    EXPECT_THAT(usage_error([&] {
                  accelerator.save_state(folder / "second", {.while_saving = WhileSaving::kRefuse});
                }),
                HasSubstr("still being written"));
    ticket.wait();
    EXPECT_FALSE(std::filesystem::exists(folder / "second"));
    accelerator.save_state(folder / "second", {.while_saving = WhileSaving::kRefuse});
  });
}

}  // namespace
}  // namespace accelerate::test
