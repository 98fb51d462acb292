// Saving beside the training.
#include <fstream>

#include "checkpoint/state/host_buffers.h"
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

// A number, its conjugate and its parts: one piece of memory, seen with lazy signs.
struct ComplexViews {
  at::Tensor z;
  std::vector<at::Tensor> loaded{};
  StateDict state_dict() const {
    return {{"z", z},
            {"conj", z.conj()},
            {"imag", torch::imag(z)},
            {"imag_of_conj", torch::imag(z.conj())}};
  }
  void load_state_dict(const StateDict& state) {
    for (const char* name : {"z", "conj", "imag", "imag_of_conj"}) {
      loaded.push_back(state.at(name).as_tensor().clone());
    }
  }
};

TEST_P(AsyncSave, ConjugatesAndNegativesKeepTheirSigns) {
  run_ranks([&](const Rank&) {
    Accelerator accelerator(on_cpu());
    ComplexViews views{.z = torch::complex(torch::tensor({1.0, 2.0}), torch::tensor({3.0, 4.0}))};
    accelerator.register_for_checkpointing(views);
    accelerator.save_state(folder / "state", {.async = true}).wait();
    accelerator.load_state(folder / "state");
    ASSERT_EQ(views.loaded.size(), 4U);
    EXPECT_TRUE(views.loaded[0].equal(views.z));
    EXPECT_TRUE(views.loaded[1].equal(views.z.conj().resolve_conj())) << views.loaded[1];
    EXPECT_TRUE(views.loaded[2].equal(torch::tensor({3.0, 4.0}))) << views.loaded[2];
    EXPECT_TRUE(views.loaded[3].equal(torch::tensor({-3.0, -4.0}))) << views.loaded[3];
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

TEST(HostBuffers, TheNextRoundGetsTheMemoryOfTheLast) {
  const std::vector<at::Tensor> state{torch::randn({300, 20}), torch::randn({5, 7}).t(),
                                      torch::randn({8, 1}).expand({8, 3}), torch::empty({0, 4})};
  checkpoint::HostBuffers buffers;
  std::vector<void*> before;
  for (int round = 0; round < 2; ++round) {
    buffers.begin_round();
    for (size_t i = 0; i < state.size(); ++i) {
      at::Tensor copy = buffers.empty_like(state[i]).copy_(state[i]);
      EXPECT_TRUE(torch::equal(copy, state[i])) << i;
      EXPECT_TRUE(copy.is_non_overlapping_and_dense()) << i;
      if (round == 0) {
        before.push_back(copy.data_ptr());
      } else {
        EXPECT_EQ(copy.data_ptr(), before[i]) << i;
      }
    }
    buffers.end_round();
  }
  EXPECT_EQ(buffers.empty_like(state[1]).strides(), state[1].strides());
}

TEST(HostBuffers, ATensorKeepsItsMemory) {
  at::Tensor kept;
  {
    checkpoint::HostBuffers buffers;
    kept = buffers.empty_like(torch::empty({1000}));
  }
  EXPECT_EQ(kept.fill_(3).sum().item<float>(), 3000);
}

}  // namespace
}  // namespace accelerate::test
