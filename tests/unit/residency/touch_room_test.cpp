#include "residency/touch/touch_room.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "residency/touch/touch_order.h"

namespace accelerate::test {
namespace {

using residency::TouchOrder;
using residency::TouchRoom;
using testing::ElementsAre;

// What is whole as units are touched, without any memory.
class Passes {
 public:
  Passes(std::vector<int64_t> numels, const TouchRoom::Options& options)
      : numels_(std::move(numels)),
        ahead_(options.prefetch_units),
        room_(options),
        is_whole_(numels_.size()) {
    for (const int64_t numel : numels_) room_.add_unit(numel);
  }

  void run(const std::vector<size_t>& touches) {
    gathered.clear();
    most = 0;
    for (const size_t unit : touches) touch(unit);
    is_whole_.assign(numels_.size(), false);
    order_.add_boundary();
    room_.note_boundary();
  }
  int64_t gathered_numel() const {
    int64_t numel = 0;
    for (const size_t unit : gathered) numel += numels_[unit];
    return numel;
  }

  std::vector<size_t> gathered{};  // in the latest pass
  int64_t most = 0;                // elements whole at a time in it

 private:
  void touch(size_t unit) {
    order_.add(unit);
    const std::vector<size_t> touched{unit};
    const auto expected = order_.expected(room_.horizon());
    room_.note_touch(touched, expected);
    const std::vector<bool> stays = room_.staying(touched, expected, is_whole_);
    for (size_t i = 0; i < numels_.size(); ++i) is_whole_[i] = is_whole_[i] && stays[i];
    gather(unit);
    for (size_t i = 0; i < std::min(ahead_, expected.size()); ++i) gather(expected[i]);
    int64_t whole = 0;
    for (size_t i = 0; i < numels_.size(); ++i) whole += is_whole_[i] ? numels_[i] : 0;
    most = std::max(most, whole);
  }
  void gather(size_t unit) {
    if (is_whole_[unit]) return;
    is_whole_[unit] = true;
    gathered.push_back(unit);
  }

  std::vector<int64_t> numels_;
  size_t ahead_;
  TouchOrder order_;
  TouchRoom room_;
  std::vector<bool> is_whole_;
};

Passes known_passes(const std::vector<int64_t>& numels, const std::vector<size_t>& touches,
                    const TouchRoom::Options& options = {}) {
  Passes passes(numels, options);
  for (int step = 0; step < 3; ++step) passes.run(touches);
  return passes;
}

TEST(TouchRoom, HasUnitsOfOneSizeGoAsTheyCame) {
  const Passes passes = known_passes({8, 8, 8, 8, 8}, {0, 1, 2, 3, 4, 3, 2, 1, 0});
  EXPECT_THAT(passes.gathered, ElementsAre(0, 1, 2, 3, 4, 2, 1, 0));  // 3 is next at the turn
  EXPECT_EQ(passes.most, 2 * 8);
}

TEST(TouchRoom, HasUnitsOfOneSizeGoWithoutPrefetchToo) {
  const Passes passes = known_passes({8, 8, 8, 8}, {0, 1, 2, 3, 2, 1, 0}, {.prefetch_units = 0});
  EXPECT_THAT(passes.gathered, ElementsAre(0, 1, 2, 3, 2, 1, 0));
  EXPECT_EQ(passes.most, 8);
}

TEST(TouchRoom, KeepsALargeUnitWhileSmallOnesAreTouched) {
  const Passes passes = known_passes({32, 8, 8, 8, 8, 8}, {0, 1, 2, 3, 4, 5, 0, 5, 4, 3, 2, 1});
  // 4 and 3 have room beside it at the turn, and no more.
  EXPECT_THAT(passes.gathered, ElementsAre(0, 1, 2, 3, 4, 5, 2, 1));
  EXPECT_LT(passes.most, (32 + 8) * 3 / 2);
}

TEST(TouchRoom, KeepsAUnitAsLargeAsThoseInUseBeyondThat) {
  // Embeddings in a unit of their own, the rest of the outermost module in another.
  const std::vector<int64_t> numels{64, 1, 20, 20, 20, 20};
  const Passes passes = known_passes(numels, {0, 1, 2, 3, 4, 5, 1, 0, 1, 5, 4, 3, 2});
  EXPECT_EQ(std::ranges::count(passes.gathered, 0U), 1);
  EXPECT_GT(2 * passes.most, 3 * (64 + 1));  // the first two are the most that is needed
  EXPECT_LT(passes.most, 2 * (64 + 1));
}

TEST(TouchRoom, GoesNoFurtherThanTheLimit) {
  const Passes passes =
      known_passes({32, 8, 8, 8}, {0, 1, 2, 3, 0, 3, 2, 1}, {.max_whole_numel = 40});
  EXPECT_THAT(passes.gathered, ElementsAre(0, 1, 2, 3, 0, 2, 1));
  EXPECT_LE(passes.most, 40);
}

TEST(TouchRoom, KeepsWhatIsTouchedAgainNearBy) {
  const std::vector<int64_t> numels{8, 8, 8, 8};
  const TouchRoom::Options near{.prefetch_units = 0, .keep_within_numel = 8};
  EXPECT_THAT(known_passes(numels, {0, 1, 0, 2}, near).gathered, ElementsAre(0, 1, 2));
  EXPECT_THAT(known_passes(numels, {0, 1, 2, 3, 0}, near).gathered, ElementsAre(0, 1, 2, 3, 0));
}

TEST(TouchRoom, ForgetsWhatPassesBeforeTheLatestNeeded) {
  Passes passes({32, 8, 8, 8, 8}, {});
  const std::vector<size_t> with_large{0, 1, 2, 3, 4, 0, 4, 3, 2, 1};
  const std::vector<size_t> without{1, 2, 3, 4, 3, 2, 1};
  for (int step = 0; step < 3; ++step) passes.run(with_large);
  for (int step = 0; step < 3; ++step) passes.run(without);
  EXPECT_THAT(passes.gathered, ElementsAre(1, 2, 3, 4, 2, 1));
  EXPECT_EQ(passes.most, 2 * 8);
}

// GPT-2 with tied embeddings: the outermost unit gathered once a step, and layers at most twice, is
// what FSDP does.
TEST(TouchRoom, GathersNoMoreOfGpt2ThanFsdp) {
  struct Size {
    int64_t width;
    size_t layers;
  };
  for (const auto& [width, layers] :
       {Size{768, 12}, Size{1024, 24}, Size{1280, 36}, Size{1600, 48}}) {
    for (const bool is_split : {false, true}) {
      const int64_t embedding = 50304 * width;
      const int64_t rest = 1024 * width + 2 * width;
      const auto layer = 12 * width * width + 13 * width;
      std::vector<int64_t> numels{is_split ? embedding : embedding + rest};
      if (is_split) numels.push_back(rest);
      const size_t first = numels.size();
      numels.resize(first + layers, layer);
      std::vector<size_t> forward(layers);
      std::iota(forward.begin(), forward.end(), first);
      std::vector<size_t> touches{0};
      if (is_split) touches.push_back(1);
      touches.insert(touches.end(), forward.begin(), forward.end());
      if (is_split) touches.push_back(1);
      touches.push_back(0);
      if (is_split) touches.push_back(1);
      touches.insert(touches.end(), forward.rbegin(), forward.rend());

      const Passes passes = known_passes(numels, touches);
      const int64_t all = std::accumulate(numels.begin(), numels.end(), int64_t{0});
      const int64_t of_layers = static_cast<int64_t>(layers) * layer;
      EXPECT_LT(passes.gathered_numel(), all + of_layers) << width;
      EXPECT_LT(passes.most, 2 * (numels[0] + layer)) << width;
      if (width == 768 && !is_split) {
        EXPECT_EQ(passes.gathered_numel(), all + 8 * layer);
      }
    }
  }
}

}  // namespace
}  // namespace accelerate::test
