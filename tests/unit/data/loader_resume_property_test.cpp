// Interrupted and resumed passes, over random loaders: nothing is lost and nothing comes twice.
#include <gmock/gmock.h>

#include "unit/data/loader_cases.h"

namespace accelerate::test {
namespace {

struct Uninterrupted {
  std::vector<Seen> ranks;
  std::vector<int64_t> real;
};

template <class Loader>
Uninterrupted read_whole(const LoaderCase& c, const Loader& whole, int ranks) {
  Uninterrupted result;
  for (int rank = 0; rank < ranks; ++rank) {
    auto loader = whole.sharded(c.shard(rank, ranks));
    loader.set_epoch(c.epoch);
    result.ranks.push_back(read_pass(loader));
    const auto real = real_samples(result.ranks.back());
    result.real.insert(result.real.end(), real.begin(), real.end());
  }
  result.real = sorted(result.real);
  return result;
}

// Reads on from `state` (from the beginning of the epoch where there is none), `most` rounds, on
// `ranks` ranks. All of them say that they stand at the same place.
struct Part {
  std::vector<Seen> ranks;
  LoaderState state;
};
template <class Loader>
Part read_part(const LoaderCase& c, const Loader& whole, int ranks,
               const std::optional<LoaderState>& state, size_t most) {
  Part part;
  for (int rank = 0; rank < ranks; ++rank) {
    auto loader = whole.sharded(c.shard(rank, ranks));
    loader.set_epoch(c.epoch);
    if (state) loader.load_state_dict(*state);
    part.ranks.push_back(read_pass(loader, most));
    // Rank 0 has most batches. Others whose share is shorter may have come to their end.
    const LoaderState now = loader.state_dict();
    if (rank == 0) part.state = now;
    if (part.ranks.back().size() == part.ranks.front().size() && now.epoch == part.state.epoch) {
      EXPECT_EQ(now, part.state) << "rank " << rank;
    }
  }
  return part;
}

void append_real(const Part& part, std::vector<int64_t>& to) {
  for (const Seen& rank : part.ranks) {
    const auto real = real_samples(rank);
    to.insert(to.end(), real.begin(), real.end());
  }
}

size_t some_rounds(LoaderCase& c, const Seen& rounds) {
  return static_cast<size_t>(c.dice.up_to(static_cast<int64_t>(rounds.size())));
}

Seen without_first(const Seen& batches, size_t count) {
  if (batches.size() <= count) return {};
  return {batches.begin() + static_cast<std::ptrdiff_t>(count), batches.end()};
}

TEST(AnyResume, OnAsManyRanksGoesOnWithTheVerySameBatches) {
  for_each_case(100'000, 2000, [](LoaderCase& c) {
    with_loader(c, [&](const auto& whole) {
      const Uninterrupted all = read_whole(c, whole, c.ranks);
      // A chain of up to three interruptions.
      std::optional<LoaderState> state;
      size_t done = 0;
      for (int64_t stops = 1 + c.dice.up_to(2); stops > 0; --stops) {
        const size_t rounds = some_rounds(c, without_first(all.ranks[0], done));
        if (rounds == 0) continue;
        const Part part = read_part(c, whole, c.ranks, state, rounds);
        for (size_t rank = 0; rank < part.ranks.size(); ++rank) {
          Seen expected = without_first(all.ranks[rank], done);
          expected.resize(std::min(expected.size(), rounds));
          ASSERT_EQ(part.ranks[rank], expected) << "rank " << rank << " after " << done;
        }
        state = part.state;
        done += rounds;
        ASSERT_EQ(state->epoch, c.epoch);
        ASSERT_EQ(state->position,
                  std::min(c.units(), static_cast<int64_t>(done) * c.stride(c.ranks)));
      }
      const Part rest = read_part(c, whole, c.ranks, state, SIZE_MAX);
      for (size_t rank = 0; rank < rest.ranks.size(); ++rank) {
        ASSERT_EQ(rest.ranks[rank], without_first(all.ranks[rank], done)) << "rank " << rank;
      }
      ASSERT_EQ(rest.state.epoch, c.epoch + 1);
      ASSERT_EQ(rest.state.position, 0);
    });
  });
}

TEST(AnyResume, OnAnotherNumberOfRanksUsesEverySampleOnce) {
  for_each_case(200'000, 2000, [](LoaderCase& c) {
    with_loader(c, [&](const auto& whole) {
      std::vector<int64_t> real;
      std::optional<LoaderState> state;
      int ranks = c.ranks;
      int64_t position = 0;
      for (int64_t stops = 1 + c.dice.up_to(2); stops > 0; --stops) {
        const auto rounds = static_cast<size_t>(1 + c.dice.up_to(3));
        const int64_t left = (c.units() - position + c.stride(ranks) - 1) / c.stride(ranks);
        if (static_cast<int64_t>(rounds) > left) break;
        const bool incomplete =
            position + static_cast<int64_t>(rounds) * c.stride(ranks) > c.units();
        if (c.drop_last && incomplete) break;
        const Part part = read_part(c, whole, ranks, state, rounds);
        append_real(part, real);
        state = part.state;
        ASSERT_EQ(state->epoch, c.epoch);
        position = state->position;
        ranks = ranks == c.ranks ? c.other_ranks : c.ranks;
      }
      const Part rest = read_part(c, whole, ranks, state, SIZE_MAX);
      append_real(rest, real);
      real = sorted(real);
      if (!c.drop_last) {
        ASSERT_EQ(real, integers_below(c.n));
        return;
      }
      ASSERT_EQ(std::ranges::adjacent_find(real), real.end()) << "a sample comes twice";
      if (c.batching == Batching::kVaryingSampler) return;
      ASSERT_EQ(static_cast<int64_t>(real.size()), c.n - (c.n - position) % c.stride(ranks));
    });
  });
}

// Resumed ranks are as even as fresh ones, and know their length and their last batch.
TEST(AnyResume, KeepsThePromisesOfAPass) {
  for_each_case(300'000, 1500, [](LoaderCase& c) {
    with_loader(c, [&](const auto& whole) {
      auto first = whole.sharded(c.shard(0, c.ranks));
      first.set_epoch(c.epoch);
      if (read_pass(first, 1).empty()) return;
      const LoaderState state = first.state_dict();
      size_t rounds = 0;
      for (int rank = 0; rank < c.other_ranks; ++rank) {
        auto loader = whole.sharded(c.shard(rank, c.other_ranks));
        loader.load_state_dict(state);
        ASSERT_EQ(loader.state_dict(), state);
        if (c.source != Source::kEndlessStream) {
          const int64_t length = loader.size();
          ASSERT_EQ(length, static_cast<int64_t>(read_pass(loader).size()));
          loader.load_state_dict(state);
        }
        const Seen batches = read_pass(loader);
        for (size_t k = 0; k < batches.size(); ++k) {
          ASSERT_EQ(batches[k].info.is_last, k + 1 == batches.size());
          ASSERT_EQ(batches[k].info.index, batches[0].info.index + static_cast<int64_t>(k));
          ASSERT_EQ(batches[k].info.epoch, c.epoch);
        }
        if (rank == 0) rounds = batches.size();
        if (c.drop_last || c.evens_out(c.other_ranks)) {
          ASSERT_EQ(batches.size(), rounds);
        }
        ASSERT_EQ(loader.epoch(), c.epoch + 1);
      }
    });
  });
}

TEST(AnySkip, LeavesOutTheFirstBatchesOfThisEpochAndNoneOfTheNext) {
  for_each_case(400'000, 1500, [](LoaderCase& c) {
    with_loader(c, [&](const auto& whole) {
      for (int rank = 0; rank < c.ranks; ++rank) {
        auto loader = whole.sharded(c.shard(rank, c.ranks));
        loader.set_epoch(c.epoch);
        const Seen all = read_pass(loader);
        const Seen next = read_pass(loader);
        loader.set_epoch(c.epoch);
        const auto skipped =
            static_cast<size_t>(c.dice.up_to(static_cast<int64_t>(all.size()) + 2));
        const auto rest = loader.skip_first_batches(static_cast<int64_t>(skipped));
        const Seen expected = without_first(all, skipped);
        if (c.source != Source::kEndlessStream) {
          ASSERT_EQ(rest.size(), static_cast<int64_t>(expected.size())) << "skipped " << skipped;
        }
        ASSERT_EQ(read_pass(rest), expected) << "skipped " << skipped;
        ASSERT_EQ(rest.epoch(), c.epoch + 1);
        ASSERT_EQ(loader.epoch(), c.epoch + 1);
        ASSERT_EQ(read_pass(rest), next) << "skipped " << skipped;
      }
    });
  });
}

TEST(AnySkip, AStateTakenWhileSkippingIsTheStateOfThePass) {
  for_each_case(500'000, 1000, [](LoaderCase& c) {
    with_loader(c, [&](const auto& whole) {
      auto loader = whole.sharded(c.shard(0, c.ranks));
      loader.set_epoch(c.epoch);
      const Seen all = read_pass(loader);
      loader.set_epoch(c.epoch);
      if (all.size() < 2) return;
      const auto skipped = static_cast<size_t>(c.dice.up_to(static_cast<int64_t>(all.size()) - 1));
      const auto rest = loader.skip_first_batches(static_cast<int64_t>(skipped));
      read_pass(rest, 1);
      auto fresh = whole.sharded(c.shard(0, c.ranks));
      fresh.load_state_dict(rest.state_dict());
      ASSERT_EQ(read_pass(fresh), without_first(all, skipped + 1)) << "skipped " << skipped;
    });
  });
}

}  // namespace
}  // namespace accelerate::test
