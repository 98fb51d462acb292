// Groups of a part of the ranks, by colour and by the axes of a mesh.
#include <accelerate/mesh.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "multiproc/group.h"

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

TEST_F(SplitGroups, TooManyAtOnceAreRefused) {
  run(1, [](const Rank&) {
    Group group;
    std::vector<std::shared_ptr<Communicator>> groups;
    EXPECT_THAT(group_usage_error([&] {
                  for (int i = 0; i < 100; ++i) groups.push_back(group.comm.split(0));
                }),
                HasSubstr("there are too many groups of ranks at once"));
    EXPECT_GT(groups.size(), 50U);
    groups.clear();
    EXPECT_NE(group.comm.split(0), nullptr);
  });
}

// Rank 3 is lost. Rank 1, which has a group with it, says so; ranks 0 and 2 cannot go on either.
TEST_F(SplitGroups, ALostRankEndsAllGroupsAndIsNamedByItsRankInTheJob) {
  spawn(4, [](const Rank& rank) {
    Group group({.timeout = std::chrono::minutes(10),
                 .rendezvous_timeout = std::chrono::seconds(50),
                 .cuda_backend = CudaBackend::kGloo});
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
                 .cuda_backend = CudaBackend::kGloo});
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
                        "not arrive, its last was #1 broadcast from 0 Float[2] "
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
    EXPECT_THAT(refusal_of({{"dp", 2}, {"tp", 2}}),
                HasSubstr("dp = 2, tp = 2 does not give 2 ranks"));
    EXPECT_THAT(refusal_of({}), HasSubstr("no axes does not give 2 ranks"));
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
