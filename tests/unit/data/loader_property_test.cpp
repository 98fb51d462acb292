// What must hold for every loader, over random ones: each sample once, even ranks, honest masks.
#include "accelerate/detail/batch_stream_maker.h"
#include "accelerate/detail/pass_plan.h"
#include "accelerate/detail/stream_maker.h"
#include "unit/data/loader_cases.h"

namespace accelerate::test {
namespace {

// Everything that a batch of one rank says of itself.
void expect_honest_infos(const Seen& batches, int64_t epoch) {
  for (size_t k = 0; k < batches.size(); ++k) {
    const BatchInfo& info = batches[k].info;
    ASSERT_EQ(info.epoch, epoch);
    ASSERT_EQ(info.index, static_cast<int64_t>(k));
    ASSERT_EQ(info.is_last, k + 1 == batches.size());
    ASSERT_EQ(info.size, static_cast<int64_t>(batches[k].samples.size()));
    ASSERT_GT(info.size, 0);
    ASSERT_GE(info.valid, 0);
    ASSERT_LE(info.valid, info.size);
    const at::Tensor mask = info.valid_mask();
    ASSERT_EQ(mask.sizes(), at::IntArrayRef({info.size}));
    ASSERT_EQ(mask.sum().item<int64_t>(), info.valid);
    if (info.valid > 0) {
      ASSERT_TRUE(mask.narrow(0, 0, info.valid).all().item<bool>());
    }
  }
}

// The samples that are left out are those that cannot fill a round, and no others.
void expect_each_sample_once(const LoaderCase& c, const std::vector<Seen>& ranks) {
  std::vector<int64_t> real;
  for (const Seen& rank : ranks) {
    const auto of_rank = real_samples(rank);
    real.insert(real.end(), of_rank.begin(), of_rank.end());
  }
  real = sorted(real);
  if (!c.drop_last) {
    ASSERT_EQ(real, integers_below(c.n));
    return;
  }
  ASSERT_EQ(std::ranges::adjacent_find(real), real.end()) << "a sample comes twice";
  const int64_t stride = c.stride(c.ranks);
  if (c.batching == Batching::kVaryingSampler) {
    size_t batches = 0;
    for (const Seen& rank : ranks) batches += rank.size();
    ASSERT_EQ(static_cast<int64_t>(batches), c.units() / stride * stride);
  } else {
    ASSERT_EQ(static_cast<int64_t>(real.size()), c.n / stride * stride);
  }
}

// Repeats come in the last round only, and only where ranks are evened out.
void expect_only_repeats_are_masked(const LoaderCase& c, const std::vector<Seen>& ranks) {
  for (const Seen& rank : ranks) {
    for (const SeenBatch& batch : rank) {
      if (batch.info.is_last && c.evens_out(c.ranks)) continue;
      ASSERT_EQ(batch.info.valid, batch.info.size) << batch;
    }
  }
}

void expect_even_ranks(const LoaderCase& c, const std::vector<Seen>& ranks) {
  if (!c.drop_last && !c.evens_out(c.ranks)) return;
  for (const Seen& rank : ranks) {
    ASSERT_EQ(rank.size(), ranks.front().size());
    if (c.batching == Batching::kVaryingSampler) continue;
    for (const SeenBatch& batch : rank) {
      ASSERT_EQ(batch.info.size, c.stride(c.ranks) / c.ranks) << batch;
    }
  }
}

template <class Loader>
std::vector<Seen> read_ranks(const LoaderCase& c, const Loader& whole) {
  std::vector<Seen> ranks;
  for (int rank = 0; rank < c.ranks; ++rank) {
    auto loader = whole.sharded(c.shard(rank, c.ranks));
    loader.set_epoch(c.epoch);
    const auto length =
        c.source == Source::kEndlessStream ? std::nullopt : std::optional(loader.size());
    ranks.push_back(read_pass(loader));
    EXPECT_EQ(loader.epoch(), c.epoch + 1);
    if (length) {
      EXPECT_EQ(*length, static_cast<int64_t>(ranks.back().size()));
    }
  }
  return ranks;
}

TEST(AnyLoader, GivesEverySampleOnceAndMarksWhatItRepeats) {
  for_each_case(1, 4000, [](LoaderCase& c) {
    with_loader(c, [&](const auto& whole) {
      const std::vector<Seen> ranks = read_ranks(c, whole);
      for (const Seen& rank : ranks) ASSERT_NO_FATAL_FAILURE(expect_honest_infos(rank, c.epoch));
      ASSERT_NO_FATAL_FAILURE(expect_each_sample_once(c, ranks));
      ASSERT_NO_FATAL_FAILURE(expect_only_repeats_are_masked(c, ranks));
      ASSERT_NO_FATAL_FAILURE(expect_even_ranks(c, ranks));
    });
  });
}

TEST(AnyLoader, GivesTheSameBatchesWithAndWithoutWorkers) {
  for_each_case(10'000, 1000, [](LoaderCase& c) {
    c.workers = 0;
    std::vector<Seen> direct, ahead;
    with_loader(c, [&](const auto& whole) { direct = read_ranks(c, whole); });
    c.workers = static_cast<int>(1 + c.dice.up_to(2));
    with_loader(c, [&](const auto& whole) { ahead = read_ranks(c, whole); });
    ASSERT_EQ(direct, ahead);
  });
}

TEST(AnyLoader, DealsAStreamLikeADatasetInOrder) {
  for_each_case(20'000, 1500, [](LoaderCase& c) {
    c.batching = Batching::kSize;
    c.order = Order::kInOrder;
    c.source = Source::kDataset;
    std::vector<Seen> dataset, counted, endless;
    with_loader(c, [&](const auto& whole) { dataset = read_ranks(c, whole); });
    c.source = Source::kStream;
    with_loader(c, [&](const auto& whole) { counted = read_ranks(c, whole); });
    c.source = Source::kEndlessStream;
    with_loader(c, [&](const auto& whole) { endless = read_ranks(c, whole); });
    ASSERT_EQ(dataset, counted);
    ASSERT_EQ(dataset, endless);
  });
}

TEST(AnyLoader, ShufflesAnewInEachEpochAndTheSameWayForTheSameSeed) {
  const LoaderOptions random{.batch_size = 50, .shuffle = true, .seed = 5};
  const LoaderOptions permuted{.batch_size = 50, .seed = 5, .sampler = permutation_sampler()};
  for (const LoaderOptions& options : {random, permuted}) {
    const auto loader = data_loader(Integers{50}, options);
    const auto first = read_pass(loader).at(0).samples;
    const auto second = read_pass(loader).at(0).samples;
    EXPECT_NE(first, second);
    EXPECT_EQ(sorted(first), integers_below(50));
    EXPECT_EQ(sorted(second), integers_below(50));
    EXPECT_EQ(read_pass(data_loader(Integers{50}, options)).at(0).samples, first);
  }
}

// What rank 0 reads for all, as seen by a reader of whole rounds.
detail::PassSpec dispatch_spec(const LoaderCase& c) {
  detail::PassSpec spec{.samples = c.n,
                        .epoch = c.epoch,
                        .seed = c.seed,
                        .options = options_of(c),
                        .shard = c.shard(0, c.ranks)};
  spec.shard.dispatch = true;
  return spec;
}

Seen read_plan(const detail::PassSpec& spec) {
  const auto plan = detail::make_plan(spec);
  EXPECT_EQ(plan->rounds(), detail::planned_rounds(spec));
  Seen rounds;
  detail::PlannedBatch planned;
  for (int64_t k = 0; k < plan->rounds(); ++k) {
    plan->read(k, planned);
    rounds.push_back({{planned.indices.begin(), planned.indices.end()}, planned.info});
  }
  return rounds;
}

template <class Maker>
Seen read_maker(Maker maker) {
  const detail::StopFlag go_on{false};
  Seen rounds;
  typename Maker::Draft draft{};
  while (maker.draw(draft)) {
    auto produced = maker.build(std::move(draft), go_on);
    const at::Tensor data = produced.value.data;
    rounds.push_back(
        {{data.data_ptr<int64_t>(), data.data_ptr<int64_t>() + data.numel()}, produced.info});
    draft = {};
  }
  return rounds;
}

void expect_divisible_rounds(const LoaderCase& c, const Seen& rounds) {
  const auto real = sorted(real_samples(rounds));
  const int64_t stride = c.split && c.batching == Batching::kVaryingSampler ? 1 : c.stride(c.ranks);
  if (!c.drop_last) {
    ASSERT_EQ(real, integers_below(c.n));
  } else if (c.batching != Batching::kVaryingSampler) {
    ASSERT_EQ(static_cast<int64_t>(real.size()), c.n / stride * stride);
  }
  const bool varies = c.batching == Batching::kVaryingSampler;
  for (const SeenBatch& round : rounds) {
    ASSERT_EQ(round.info.size % c.ranks, 0) << round;
    // The repeats are as few as they can be.
    ASSERT_LT(round.info.size - round.info.valid, c.ranks) << round;
    if (!varies && !round.info.is_last) {
      ASSERT_EQ(round.info.size, stride) << round;
    }
    if (c.drop_last && !varies) {
      ASSERT_EQ(round.info.size, round.info.valid) << round;
    }
  }
}

TEST(AnyDispatch, GivesEverySampleOnceInRoundsThatTheRanksDivide) {
  for_each_case(30'000, 3000, [](LoaderCase& c) {
    c.source = Source::kDataset;
    c.split = c.batching == Batching::kVaryingSampler ? c.dice.flip() : c.split;
    const Seen rounds = read_plan(dispatch_spec(c));
    ASSERT_NO_FATAL_FAILURE(expect_honest_infos(rounds, c.epoch));
    ASSERT_NO_FATAL_FAILURE(expect_divisible_rounds(c, rounds));
  });
}

TEST(AnyDispatch, ReadsStreamsAndForeignBatchesLikeADatasetInOrder) {
  for_each_case(40'000, 2000, [](LoaderCase& c) {
    c.source = Source::kDataset;
    c.batching = Batching::kSize;
    c.order = Order::kInOrder;
    const detail::PassSpec spec = dispatch_spec(c);
    const Seen dataset = read_plan(spec);
    const auto collate = std::make_shared<const detail::DefaultCollate>();
    const auto numbers = std::make_shared<Stream<int64_t>>(stream(integers_below(c.n)));
    ASSERT_EQ(
        read_maker(detail::StreamMaker<int64_t, detail::DefaultCollate>(numbers, collate, spec)),
        dataset);
    if (c.drop_last) return;  // what a foreign loader drops is its own decision
    const auto batches = std::make_shared<BatchStream<at::Tensor>>(
        batch_stream([n = c.n, size = c.batch_size](int64_t) {
          auto cut_up = cut(integers_below(n), {size});
          std::vector<at::Tensor> tensors;
          for (const auto& batch : cut_up) tensors.push_back(at::tensor(batch, at::kLong));
          return tensors;
        }));
    ASSERT_EQ(read_maker(detail::BatchStreamMaker<at::Tensor, detail::DefaultCollate>(
                  batches, collate, spec)),
              dataset);
  });
}

}  // namespace
}  // namespace accelerate::test
