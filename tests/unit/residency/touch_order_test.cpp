#include "residency/touch/touch_order.h"

#include <gmock/gmock.h>

#include <vector>

#include "residency/touch/unit_layout.h"

namespace accelerate::test {
namespace {

using residency::TouchOrder;
using residency::UnitLayout;

// How many of `steps` rounds of `units` were foreseen, one step ahead.
size_t foreseen(TouchOrder& order, const std::vector<size_t>& units, int rounds) {
  size_t right = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const size_t unit : units) {
      right += order.ahead(1) == unit ? 1 : 0;
      order.add(unit);
    }
  }
  return right;
}

TEST(TouchOrder, KnowsNothingInTheFirstRound) {
  TouchOrder order;
  EXPECT_EQ(order.ahead(1), std::nullopt);
  EXPECT_EQ(foreseen(order, {0, 1, 2, 3, 2, 1, 0}, 1), 0U);
}

TEST(TouchOrder, ForeseesARoundThatRepeats) {
  TouchOrder order;
  foreseen(order, {0, 1, 2, 3, 4, 3, 2, 1, 0, 5}, 2);
  EXPECT_EQ(foreseen(order, {0, 1, 2, 3, 4, 3, 2, 1, 0, 5}, 3), 30U);
}

TEST(TouchOrder, TellsTwoVisitsOfAUnitApartByWhatCameBefore) {
  TouchOrder order;
  foreseen(order, {7, 0, 1, 0, 1, 2}, 2);
  EXPECT_EQ(foreseen(order, {7, 0, 1, 0, 1, 2}, 2), 12U);
}

TEST(TouchOrder, LooksAheadSeveralSteps) {
  TouchOrder order;
  foreseen(order, {0, 1, 2, 3}, 2);
  order.add(0);
  EXPECT_EQ(order.ahead(1), 1U);
  EXPECT_EQ(order.ahead(2), 2U);
  EXPECT_EQ(order.ahead(3), 3U);
}

TEST(TouchOrder, FollowsAnOrderThatChanges) {
  TouchOrder order;
  foreseen(order, {0, 1, 2, 3}, 3);
  foreseen(order, {0, 2, 1, 3}, 2);
  EXPECT_EQ(foreseen(order, {0, 2, 1, 3}, 2), 8U);
}

TEST(TouchOrder, LooksAcrossNoBoundary) {
  TouchOrder order;
  for (int round = 0; round < 3; ++round) {
    order.add(0);
    order.add(1);
    order.add_boundary();
    order.add_boundary();
  }
  order.add(0);
  EXPECT_EQ(order.ahead(1), 1U);
  EXPECT_EQ(order.ahead(2), std::nullopt);
  order.add(1);
  EXPECT_EQ(order.ahead(1), std::nullopt);
}

TEST(TouchOrder, GoesOnAfterItHasForgotten) {
  TouchOrder order;
  foreseen(order, {0, 1, 2}, 30000);
  EXPECT_EQ(foreseen(order, {0, 1, 2}, 30000), 90000U);
}

TEST(UnitLayout, PiecesOfAllRanksAreTheParametersEachElementOnce) {
  for (const int world_size : {1, 2, 3, 5}) {
    const std::vector<int64_t> numels{1, 130, 0, 64, 777, 3};
    const UnitLayout layout(numels, world_size);
    for (size_t i = 0; i < numels.size(); ++i) {
      EXPECT_EQ(layout.begin(i) % 64, 0);
      int64_t next = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const auto piece = layout.piece(i, rank);
        if (!piece) continue;
        EXPECT_EQ(piece->begin, next);
        EXPECT_EQ(rank * layout.shard_numel() + piece->place, layout.begin(i) + piece->begin);
        EXPECT_LE(piece->place + piece->numel(), layout.shard_numel());
        next = piece->end;
      }
      EXPECT_EQ(next, numels[i]);
    }
    EXPECT_EQ(layout.whole_numel(), world_size * layout.shard_numel());
    EXPECT_EQ(layout.parameter_numel(), 975);
  }
}

}  // namespace
}  // namespace accelerate::test
