// Groups of a part of the ranks, by colour and by the axes of a mesh.
#include <accelerate/find_batch_size.h>
#include <accelerate/mesh.h>
#include <accelerate/process_control.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/groups/activity.h"
#include "comm/groups/communicator_impl.h"
#include "multiproc/group.h"
#include "support/error_of.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct SplitGroups : Ranks {};

at::Tensor sum_over(Communicator& ranks, int own) {
  at::Tensor sum = torch::full({1}, own, test_device());
  ranks.all_reduce(sum);
  return sum;
}

TEST_F(SplitGroups, RanksOfOneColourFormAGroupInTheOrderOfTheirKeys) {
  run(4, [](const Rank& rank) {
    Group group;
    const auto part = group.comm.split(rank.rank % 2, -rank.rank);
    ASSERT_NE(part, nullptr);
    const std::vector<int> expected =
        rank.rank % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{3, 1};
    EXPECT_EQ(part->global_ranks(), expected);
    EXPECT_EQ(part->world_size(), 2);
    EXPECT_EQ(part->rank(), rank.rank < 2 ? 1 : 0);
    EXPECT_EQ(part->global_rank(), rank.rank);
    EXPECT_EQ(part->global_size(), 4);
    EXPECT_TRUE(
        same(sum_over(*part, 1 << rank.rank), torch::full({1}, rank.rank % 2 == 0 ? 5 : 10)));
    EXPECT_EQ(part->broadcast_bytes("from " + std::to_string(rank.rank), 0),
              rank.rank % 2 == 0 ? "from 2" : "from 3");
    EXPECT_THAT(part->all_gather_bytes(std::to_string(rank.rank)),
                rank.rank % 2 == 0 ? ElementsAre("2", "0") : ElementsAre("3", "1"));
    // The group of all goes on beside them.
    EXPECT_TRUE(same(sum_over(group.comm, 1), torch::full({1}, 4)));
    EXPECT_THAT(group.comm.global_ranks(), ElementsAre(0, 1, 2, 3));
  });
}

TEST_F(SplitGroups, ARankWithoutAColourGetsNoGroupAndOneByItselfSendsNothing) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto pair = group.comm.split(rank.rank == 1 ? -1 : 7);
    ASSERT_EQ(pair == nullptr, rank.rank == 1);
    if (pair) EXPECT_TRUE(same(sum_over(*pair, rank.rank), torch::full({1}, 2)));
    const auto alone = group.comm.split(rank.rank);
    EXPECT_EQ(alone->world_size(), 1);
    EXPECT_THAT(alone->global_ranks(), ElementsAre(rank.rank));
    EXPECT_TRUE(same(sum_over(*alone, rank.rank), torch::full({1}, rank.rank)));
  });
}

TEST_F(SplitGroups, AGroupCanBeSplitAgainAndOutlivesWhatItWasSplitFrom) {
  run(4, [](const Rank& rank) {
    std::shared_ptr<Communicator> pair;
    {
      Group group;
      const auto three = group.comm.split(rank.rank == 0 ? 0 : 1);
      pair = three->split(rank.rank == 3 ? 1 : 0);
    }
    if (rank.rank == 1 || rank.rank == 2) {
      EXPECT_THAT(pair->global_ranks(), ElementsAre(1, 2));
      EXPECT_TRUE(same(sum_over(*pair, rank.rank), torch::full({1}, 3)));
      rank.reach(1);
    } else {
      EXPECT_THAT(pair->global_ranks(), ElementsAre(rank.rank));
      rank.wait_for(1, 1);  // rank 0 keeps the store for those that go on
      rank.wait_for(2, 1);
    }
  });
}

TEST_F(SplitGroups, ErrorsInAPartNameTheRanksOfTheJob) {
  run(4, [](const Rank& rank) {
    Group group;
    const auto part = group.comm.split(rank.rank / 2);
    const std::string here = "[rank " + std::to_string(rank.rank) + " of 4] ";
    at::Tensor tensor = torch::ones({1}, test_device());
    EXPECT_THAT(
        group_usage_error([&] { part->broadcast(tensor, 2); }),
        AllOf(HasSubstr(here), HasSubstr("root 2 is not a rank"), HasSubstr("ranks are 0 to 1")));
    if (rank.rank >= 2) {
      const at::Tensor rows = torch::ones({1, rank.rank}, test_device());
      EXPECT_THAT(group_usage_error([&] { (void)part->all_gather_ragged(rows); }),
                  AllOf(HasSubstr(here), HasSubstr(rank.rank == 2 ? "on rank 3" : "on rank 2")));
      std::vector<at::Tensor> inputs;  // the root has none
      EXPECT_THAT(group_usage_error([&] { part->scatter(tensor, inputs, 1); }),
                  HasSubstr("on rank 3: 0 inputs for 2 ranks"));
    }
    group.comm.barrier();
  });
}

TEST_F(SplitGroups, WhatAPartDoesTogetherNamesTheRanksOfTheJob) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto part = group.comm.split(rank.rank == 0 ? 0 : 1);
    if (rank.rank == 0) return;
    const auto fail_on_last = [&] {
      if (rank.rank == 2) throw CommError({.what = "disk full"});
    };
    const std::string work = error_text<CommError>([&] { without_timeout(*part, fail_on_last); });
    const std::string search = error_text<CommError>([&] {
      (void)find_executable_batch_size(
          [&](int64_t size) {
            fail_on_last();
            return size;
          },
          {.starting_batch_size = 4, .communicator = part.get()});
    });
    if (rank.rank == 2) return;
    EXPECT_THAT(work, AllOf(HasSubstr("[rank 1 of 3]"), HasSubstr("the work of rank 2 failed")));
    EXPECT_THAT(search, AllOf(HasSubstr("[rank 1 of 3]"), HasSubstr("rank 2 failed with batch")));
  });
}

// No line of the board is free while one lives.
class FullBoard {
 public:
  explicit FullBoard(Communicator& ranks) : events_(comm::events_of(ranks)) {
    for (int line = events_->open_line(); line != EventStream::kNoLine;) {
      lines_.push_back(line);
      line = events_->open_line();
    }
  }
  ~FullBoard() {
    for (const int line : lines_) events_->close_line(line);
  }
  FullBoard(const FullBoard&) = delete;
  FullBoard& operator=(const FullBoard&) = delete;

 private:
  const std::shared_ptr<EventStream> events_;
  std::vector<int> lines_;
};

TEST_F(SplitGroups, OneRankWithoutRoomRefusesAnotherGroupOnAllRanks) {
  run(3, [](const Rank& rank) {
    Group group;
    auto full = rank.rank == 1 ? std::make_unique<FullBoard>(group.comm) : nullptr;
    EXPECT_THAT(group_usage_error([&] { (void)group.comm.split(rank.rank == 2 ? -1 : 0); }),
                AllOf(HasSubstr("there are too many groups of ranks at once on rank 1"),
                      HasSubstr("[rank " + std::to_string(rank.rank) + " of 3]")));
    EXPECT_EQ(group.comm.split(rank.rank)->world_size(), 1);  // needs no room
    full.reset();
    EXPECT_EQ(group.comm.split(0)->world_size(), 3);
  });
}

TEST_F(SplitGroups, GroupsOfOneRankNeedNoRoom) {
  run(1, [](const Rank&) {
    Group group;
    std::vector<std::shared_ptr<Communicator>> groups;
    for (int i = 0; i < 200; ++i) groups.push_back(group.comm.split(0));
    EXPECT_TRUE(same(sum_over(*groups.back(), 3), torch::full({1}, 3, test_device())));
  });
}

TEST_F(SplitGroups, APlaneThatCouldNotBeOpenedIsOpenedLater) {
  run(4, [](const Rank& rank) {
    Group group;
    Mesh mesh(group.comm, {{"dp", 2}, {"cp", 1}, {"tp", 2}});
    auto full = rank.rank == 1 ? std::make_unique<FullBoard>(group.comm) : nullptr;
    EXPECT_THAT(group_usage_error([&] {
                  (void)mesh.plane({"cp", "tp"});
                }),
                HasSubstr("too many groups"));
    full.reset();
    EXPECT_EQ(mesh.plane({"cp", "tp"}).world_size(), 2);
  });
}

// Rank 2 tells what split() asks for and never comes to open the group.
TEST_F(SplitGroups, ARankThatIsLostWhileAGroupOpensIsNoticedSoon) {
  spawn(3, [](const Rank& rank) {
    Group group({.timeout = std::chrono::minutes(10),
                 .rendezvous_timeout = std::chrono::seconds(50),
                 .cuda_backend = test_cuda_backend()});
    if (rank.rank == 2) {
      (void)group.comm.all_gather(torch::tensor({0, 0, 1}, torch::kLong));
      rank.reach(1);
      for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    (void)group.comm.split(0);
  });
  ASSERT_TRUE(wait_for_stage(2, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the others have it, too
  kill_rank(2, SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank), AllOf(HasSubstr("#1 split failed"),
                                      HasSubstr("rank 2 did not arrive: its process has ended")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// Longer than the peer watch waits before it ends what a rank that has gone leaves behind.
constexpr std::chrono::seconds kLongerThanGrace{5};

TEST_F(SplitGroups, RankZeroMayLeaveAGroupThatItIsNotInAlone) {
  run(3, [&](const Rank& rank) {
    std::shared_ptr<Communicator> part;
    {
      Group group;
      part = group.comm.split(rank.rank == 0 ? -1 : 0);
    }
    if (rank.rank == 0) return;
    const auto end = std::chrono::steady_clock::now() + kLongerThanGrace;
    at::Tensor going_on = torch::ones({1});
    while (going_on.item<float>() > 0) {
      going_on.fill_(std::chrono::steady_clock::now() < end ? 1 : 0);
      part->all_reduce(going_on);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
}

TEST_F(SplitGroups, AWorkThatHasEndedNeedsNobodyThoughItWasNotWaitedFor) {
  run(3, [&](const Rank& rank) {
    Group group;
    const auto part = group.comm.split(rank.rank == 1 ? -1 : 0);
    at::Tensor sum = torch::ones({4});
    Work work = group.comm.all_reduce_async(sum);
    if (rank.rank == 1) return work.wait();
    std::this_thread::sleep_for(kLongerThanGrace);
    part->barrier();
    work.wait();
    EXPECT_TRUE(same(sum, torch::full({4}, 3.0F)));
  });
}

// What a backend gives that only orders streams: nobody is told when the exchange is over.
class OverByItself final : public device::CollectiveWork {
 public:
  void wait() override {}
  bool is_done() const override { return true; }
};

TEST_F(SplitGroups, AWorkIsAskedWhetherItIsOverBeforeItsRankIsBlamed) {
  run(3, [&](const Rank& rank) {
    Group group;
    const auto part = group.comm.split(rank.rank == 1 ? -1 : 0);
    const Work work = comm::impl_of(group.comm)
                          .start(comm::operation_event("all_reduce on a stream"), torch::ones({1}),
                                 [] { return std::make_unique<OverByItself>(); });
    group.comm.barrier();
    if (rank.rank == 1) return;
    std::this_thread::sleep_for(kLongerThanGrace);
    part->barrier();
    EXPECT_TRUE(work.done());
  });
}

TEST_F(SplitGroups, EventsSayWhatAGroupIsCalledOnAllItsRanks) {
  run(3, [&](const Rank& rank) {
    Group group;
    EventStream::Reader reader(comm::events_of(group.comm));
    (void)group.comm.split(-1);
    const auto part = group.comm.split(rank.rank == 1 ? 1 : 0);
    std::vector<std::string> names;
    for (Event event; reader.next(event);) {
      if (event.kind == EventKind::kGroupOpened) names.emplace_back(event.text());
    }
    EXPECT_THAT(names, ElementsAre(rank.rank == 1 ? "all/2.1" : "all/2.0"));
  });
}

// Rank 3 is lost. Rank 1, which has a group with it, says so; ranks 0 and 2 cannot go on either.
TEST_F(SplitGroups, ALostRankEndsAllGroupsAndIsNamedByItsRankInTheJob) {
  spawn(4, [](const Rank& rank) {
    Group group({.timeout = std::chrono::minutes(10),
                 .rendezvous_timeout = std::chrono::seconds(50),
                 .cuda_backend = test_cuda_backend()});
    const auto part = group.comm.split(rank.rank % 2);
    part->barrier();
    rank.reach(1);
    for (;;) part->barrier();
  });
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(wait_for_stage(rank, 1));
  kill_rank(3, SIGKILL);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank), AllOf(HasSubstr("[rank " + std::to_string(rank) + " of 4]"),
                                      HasSubstr(rank == 1 ? "barrier among ranks 1 and 3 failed"
                                                          : "barrier among ranks 0 and 2 failed"),
                                      HasSubstr("rank 3 did not arrive: its process has ended")));
  }
}

// Of two groups that wait, the one with the stopped rank says for whom.
TEST_F(SplitGroups, ARankThatDoesNotComeIsNamedByItsGroupAlone) {
  spawn(3, [](const Rank& rank) {
    Group group({.timeout = std::chrono::seconds(rank.rank == 2 ? 3 : 100),
                 .rendezvous_timeout = std::chrono::seconds(50),
                 .cuda_backend = CudaBackend::kGloo});  // whose waits block the host
    const auto part = group.comm.split(rank.rank == 0 ? 0 : 1);
    at::Tensor tensor = torch::ones({2}, test_device());
    part->broadcast(tensor);
    if (rank.rank == 1) {
      rank.wait_for(2, 1);
      return;
    }
    if (rank.rank == 0) {
      rank.wait_for(2, 1);
      return;
    }
    try {
      part->all_reduce(tensor);
    } catch (const CommError&) {
      rank.reach(1);
      throw;
    }
  });
  EXPECT_EQ(exit_code_of(2), kExitCommError);
  EXPECT_THAT(error_of(2),
              HasSubstr("all_reduce sum Float[2] among ranks 1 and 2 failed: rank 1 did "
                        "not arrive, its last was #2 broadcast from 0 Float[2] "
                        "(finished)"));
}

TEST_F(SplitGroups, TheLastAxisOfAMeshRunsFastest) {
  run(4, [](const Rank& rank) {
    Group group;
    Mesh mesh(group.comm, {{"dp", 2}, {"tp", 2}});
    EXPECT_EQ(mesh.axes().size(), 2U);
    EXPECT_EQ(mesh.axes()[1].name, "tp");
    EXPECT_EQ(mesh.coordinate("dp"), rank.rank / 2);
    EXPECT_EQ(mesh.coordinate("tp"), rank.rank % 2);
    const int first = rank.rank / 2 * 2;
    EXPECT_THAT(mesh.axis("tp").global_ranks(), ElementsAre(first, first + 1));
    EXPECT_THAT(mesh.axis("dp").global_ranks(), ElementsAre(rank.rank % 2, rank.rank % 2 + 2));
    EXPECT_TRUE(same(sum_over(mesh.axis("tp"), rank.rank), torch::full({1}, 2 * first + 1)));
    EXPECT_TRUE(
        same(sum_over(mesh.axis("dp"), rank.rank), torch::full({1}, 2 * (rank.rank % 2) + 2)));
    EXPECT_EQ(&mesh.plane({"tp", "dp"}), &group.comm);
    EXPECT_EQ(&mesh.plane({"dp"}), &mesh.axis("dp"));
    EXPECT_EQ(mesh.plane({}).world_size(), 1);
  });
}

TEST_F(SplitGroups, PlanesOfAMeshJoinAxes) {
  run(4, [](const Rank& rank) {
    Group group;
    Mesh mesh(group.comm, {{"dp_shard", 2}, {"cp", 1}, {"tp", 2}});
    EXPECT_EQ(mesh.axis("cp").world_size(), 1);
    Communicator& shards = mesh.plane({"cp", "dp_shard"});
    EXPECT_THAT(shards.global_ranks(), ElementsAre(rank.rank % 2, rank.rank % 2 + 2));
    EXPECT_TRUE(same(sum_over(shards, rank.rank), torch::full({1}, 2 * (rank.rank % 2) + 2)));
  });
}

TEST_F(SplitGroups, AMeshThatDoesNotFitIsRefusedOnAllRanks) {
  run(2, [](const Rank& rank) {
    Group group;
    const auto refusal_of = [&](std::vector<MeshAxis> axes) {
      return group_usage_error([&] { const Mesh mesh(group.comm, std::move(axes)); });
    };
    EXPECT_THAT(
        refusal_of({{"dp", 2}, {"tp", 2}}),
        HasSubstr(
            "the sizes of dp = 2, tp = 2 do not multiply to the number of ranks, which is 2"));
    EXPECT_THAT(refusal_of({}), HasSubstr("a mesh without axes is for one rank, not for 2"));
    EXPECT_THAT(refusal_of({{"dp", 2}, {"dp", 1}}), HasSubstr("two axes have the name dp"));
    EXPECT_THAT(refusal_of({{"", 2}}), HasSubstr("an axis has no name"));
    EXPECT_THAT(refusal_of({{"dp", 2}, {"tp", 0}}), HasSubstr("the axis tp has no ranks"));
    EXPECT_THAT(
        refusal_of(rank.rank == 0 ? std::vector<MeshAxis>{{"dp", 2}}
                                  : std::vector<MeshAxis>{{"tp", 2}}),
        HasSubstr("the ranks lay out different meshes: rank 0 with dp = 2, rank 1 with tp = 2"));
    Mesh mesh(group.comm, {{"dp", 2}});
    EXPECT_THAT(group_usage_error([&] { (void)mesh.axis("tp"); }),
                AllOf(HasSubstr("the mesh has no axis tp"), HasSubstr("it has dp = 2")));
  });
}

}  // namespace
}  // namespace accelerate::test
