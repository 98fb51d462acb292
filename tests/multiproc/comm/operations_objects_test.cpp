// Objects of any shape: gather_object(), broadcast_object(), broadcast_object_list().
#include "multiproc/comm/operations_values.h"

namespace accelerate::test {
namespace {

using Objects = OperationsOn;
INSTANTIATE_TEST_SUITE_P(Ranks, Objects, testing::Range(1, 5));

TEST_P(Objects, ListsAreJoinedAndOtherValuesAreOneEntryARank) {
  run_ranks([](const Rank& rank) {
    Group group;
    const std::string name = "rank" + std::to_string(rank.rank);
    std::vector<std::string> names, twice;
    std::vector<bool> flags;
    std::vector<std::map<std::string, int>> maps;
    for (int r = 0; r < rank.world_size; ++r) {
      names.push_back("rank" + std::to_string(r));
      for (int i = 0; i < r; ++i) twice.push_back(names.back());
      flags.push_back(r == 0);
      maps.push_back({{names.back(), r}});
    }
    EXPECT_EQ(gather_object(group.comm, name), names);
    // As many entries as the rank's number: none on rank 0.
    EXPECT_EQ(gather_object(group.comm, std::vector<std::string>(rank.rank, name)), twice);
    EXPECT_EQ(gather_object(group.comm, rank.rank == 0), flags);
    EXPECT_EQ(gather_object(group.comm, std::vector<bool>{rank.rank == 0}), flags);
    EXPECT_EQ(gather_object(group.comm, std::map<std::string, int>{{name, rank.rank}}), maps);
  });
}

TEST_P(Objects, OfDifferentShapesComeBackWhole) {
  run_ranks([](const Rank& rank) {
    Group group;
    const auto all = gather_object(group.comm, everything(rank.rank, rank.rank));
    ASSERT_EQ(all.size(), static_cast<size_t>(rank.world_size));
    for (int r = 0; r < rank.world_size; ++r) {
      expect_same(all[static_cast<size_t>(r)], everything(r, r));
    }
  });
}

TEST_P(Objects, AreBroadcastWhateverTheOthersHold) {
  run_ranks([](const Rank& rank) {
    Group group;
    const int from = rank.world_size - 1;
    const Everything own = rank.rank == from ? everything(from, 3) : Everything{};
    expect_same(broadcast_object(group.comm, own, from), everything(from, 3));
    expect_same(broadcast_object(group.comm, std::string(), from), std::string());
  });
}

TEST_P(Objects, OfAListAreReplacedInPlace) {
  run_ranks([](const Rank& rank) {
    Group group;
    std::vector<std::string> list(rank.rank == 0 ? 3 : 1, "of " + std::to_string(rank.rank));
    broadcast_object_list(group.comm, list);
    EXPECT_EQ(list, std::vector<std::string>(3, "of 0"));
    std::tuple<int, std::string> mixed{rank.rank, "s" + std::to_string(rank.rank)};
    broadcast_object_list(group.comm, mixed, rank.world_size - 1);
    EXPECT_EQ(mixed, std::tuple(rank.world_size - 1, "s" + std::to_string(rank.world_size - 1)));
  });
}

}  // namespace
}  // namespace accelerate::test
