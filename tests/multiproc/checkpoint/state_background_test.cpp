// What goes wrong beside the training: seen once, by all ranks, and the next save is none the
// worse.
#include <pthread.h>
#include <sys/socket.h>

#include <set>

#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct StateBackground : Ranks {
  StateFolder folder;
};

bool is_complete(const std::filesystem::path& directory) {
  return std::filesystem::exists(directory / "manifest.json");
}

std::set<int> open_connections() {
  std::set<int> connections;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    int listens = 0;
    socklen_t size = sizeof listens;
    const bool is_socket = getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0;
    if (is_socket && listens == 0) connections.insert(descriptor);
  }
  return connections;
}

// Saves beside the training, and cuts the connections that were made for it.
void save_and_cut(Accelerator& accelerator, const std::filesystem::path& directory, bool cuts) {
  const std::set<int> before = open_connections();
  accelerator.save_state(directory, {.async = true}).wait();
  accelerator.wait_for_everyone();
  if (cuts) {
    for (const int socket : open_connections()) {
      if (!before.contains(socket)) shutdown(socket, SHUT_RDWR);
    }
  }
  accelerator.wait_for_everyone();
}

TEST_F(StateBackground, AGroupOfWritersThatIsLostIsMadeAnew) {
  run(2, [&](const Rank& rank) {
    ResumeTraining training({}, 7);
    Accelerator& accelerator = training.accelerator();
    save_and_cut(accelerator, folder / "first", rank.rank == 1);
    const SaveTicket ticket = accelerator.save_state(folder / "second", {.async = true});
    EXPECT_THAT(thrown_by<CheckpointError>([&] { ticket.wait(); }),
                HasSubstr("the ranks lost each other while they wrote"));
    training.train(0, 2);  // the group of the training is well
    accelerator.save_state(folder / "third", {.async = true}).wait();
    EXPECT_TRUE(is_complete(folder / "third"));
  });
}

TEST_F(StateBackground, ALostGroupThatNobodyWaitedForStopsTheNextSaveOnAllRanks) {
  run(2, [&](const Rank& rank) {
    ResumeTraining training({}, 7);
    Accelerator& accelerator = training.accelerator();
    save_and_cut(accelerator, folder / "first", rank.rank == 1);
    accelerator.save_state(folder / "second", {.async = true});
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.save_state(folder / "third"); }),
                HasSubstr("the ranks lost each other while they wrote"));
    accelerator.save_state(folder / "third", {.async = true}).wait();
    EXPECT_TRUE(is_complete(folder / "third"));
  });
}

TEST_F(StateBackground, AnErrorThatOneRankHasSeenIsNotThrownAgain) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto hook = accelerator.register_save_state_pre_hook(
        [&](auto&, const std::filesystem::path& directory) {
          if (rank.rank == 1) std::filesystem::create_directory(directory / "random_states_1.pkl");
        });
    const SaveTicket ticket = accelerator.save_state(folder / "first", {.async = true});
    hook.remove();
    if (rank.rank == 0) thrown_by<CheckpointError>([&] { ticket.wait(); });
    accelerator.save_state(folder / "second");
    EXPECT_TRUE(is_complete(folder / "second"));
    EXPECT_FALSE(is_complete(folder / "first"));
  });
}

// From here on the rank can start no thread.
void use_up_threads() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, size_t{1} << 60);  // more than there are addresses
  ASSERT_EQ(pthread_setattr_default_np(&attributes), 0);
  pthread_attr_destroy(&attributes);
}

TEST_F(StateBackground, ARankWithoutAThreadForTheWriterStopsAll) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    if (rank.rank == 1) use_up_threads();
    EXPECT_THAT(thrown_by<CheckpointError>(
                    [&] { accelerator.save_state(folder / "state", {.async = true}); }),
                HasSubstr("the writer thread cannot be started"));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    accelerator.save_state(folder / "state");  // needs none
    EXPECT_TRUE(is_complete(folder / "state"));
  });
}

TEST_F(StateBackground, ExpandedTensorsKeepTheirShape) {
  run(1, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    at::Tensor expanded = torch::arange(3.0).expand({4, 3});
    accelerator.register_for_checkpointing(CheckpointFunctions{
        .state_dict =
            [&] {
              return StateDict{{"tensor", expanded}};
            },
        .load_state_dict =
            [&](const StateDict& state) { expanded = state.at("tensor").as_tensor(); }});
    accelerator.save_state(folder / "state", {.async = true}).wait();
    expanded = torch::zeros({1});
    accelerator.load_state(folder / "state");
    EXPECT_TRUE(expanded.equal(torch::arange(3.0).expand({4, 3})));
  });
}

}  // namespace
}  // namespace accelerate::test
