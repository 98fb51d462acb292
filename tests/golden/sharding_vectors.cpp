// The loader's order and sharding against the recorded behaviour of the reference.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "accelerate/batch_shard.h"
#include "accelerate/data_loader.h"
#include "accelerate/dataset.h"
#include "accelerate/errors.h"
#include "golden/reference_data.h"
#include "support/ranks.h"

namespace accelerate {
namespace {

using Batches = std::vector<std::vector<int64_t>>;

BatchShardOptions shard_options(const nlohmann::json& vector, int rank) {
  return {.n = vector.at("n"),
          .batch_size = vector.at("batch_size"),
          .drop_last = vector.at("drop_last"),
          .split_batches = vector.at("split_batches"),
          .even_batches = vector.at("even_batches"),
          .world_size = vector.at("num_processes"),
          .rank = rank};
}

Batches batches_of(const BatchShard& shard) {
  Batches batches;
  for (int64_t k = 0; k < shard.rounds(); ++k) {
    const BatchShard::Round round = shard.round(k);
    auto& batch = batches.emplace_back();
    for (int64_t slot = 0; slot < round.size; ++slot) {
      batch.push_back(shard.wrapped(round.first + slot));
    }
  }
  return batches;
}

// Whether the slots marked real, over all ranks, are every sample exactly once (with drop_last:
// at most once).
bool real_slots_cover_the_samples_once(const nlohmann::json& vector) {
  std::vector<int> seen(vector.at("n").get<size_t>(), 0);
  const int world_size = vector.at("num_processes");
  for (int rank = 0; rank < world_size; ++rank) {
    const BatchShard shard(shard_options(vector, rank));
    for (int64_t k = 0; k < shard.rounds(); ++k) {
      const BatchShard::Round round = shard.round(k);
      for (int64_t slot = 0; slot < round.valid; ++slot) {
        ++seen[static_cast<size_t>(shard.wrapped(round.first + slot))];
      }
    }
  }
  const bool may_drop = vector.at("drop_last");
  for (const int count : seen) {
    if (count != 1 && !(may_drop && count == 0)) return false;
  }
  return true;
}

TEST(Vectors, BatchSamplerShard) {
  const nlohmann::json vectors = test::load_vectors("batch_sampler_shard.json");
  size_t checked = 0;
  for (const auto& vector : vectors) {
    const int world_size = vector.at("num_processes");
    for (int rank = 0; rank < world_size; ++rank) {
      const BatchShard shard(shard_options(vector, rank));
      const Batches batches = batches_of(shard);
      const size_t r = static_cast<size_t>(rank);
      ASSERT_EQ(batches, vector.at("expected").at(r).get<Batches>())
          << "rank " << rank << " of " << vector.dump();
      // Where the reference over-reports its length (B6), the intended one is what it yields.
      const int64_t length = vector.contains("upstream_bug")
                                 ? static_cast<int64_t>(vector.at("expected").at(r).size())
                                 : vector.at("len").at(r).get<int64_t>();
      ASSERT_EQ(shard.rounds(), length) << "rank " << rank << " of " << vector.dump();
    }
    ASSERT_TRUE(real_slots_cover_the_samples_once(vector)) << vector.dump();
    ++checked;
  }
  EXPECT_EQ(checked, vectors.size());
  EXPECT_GT(checked, 0u);
}

TEST(Vectors, BatchSamplerShardErrors) {
  const nlohmann::json vectors = test::load_vectors("batch_sampler_shard_errors.json");
  ASSERT_FALSE(vectors.empty());
  for (const auto& vector : vectors) {
    // A sampler without batch size is written as null; here that is a batch size of 0.
    const auto& batch_size = vector.at("batch_size");
    const BatchShardOptions options{
        .n = 10,
        .batch_size = batch_size.is_null() ? 0 : batch_size.get<int64_t>(),
        .split_batches = true,
        .world_size = vector.at("num_processes")};
    ASSERT_THROW(BatchShard{options}, UsageError) << vector.dump();
  }
}

// In a rank of its own: a program that forks ranks runs no code of libtorch itself.
class OrderVectors : public test::Ranks {};

void check_order(const nlohmann::json& vector) {
  const int64_t n = vector.at("n");
  const TensorDataset integers(at::arange(n), at::arange(n));
  const auto loader = data_loader(
      integers, {.batch_size = n, .shuffle = true, .seed = vector.at("data_seed").get<uint64_t>()});
  for (const auto& expected : vector.at("epochs")) {
    std::vector<int64_t> order;
    for (const auto& batch : loader) {
      for (int64_t i = 0; i < n; ++i) order.push_back(batch.data[i].item<int64_t>());
    }
    ASSERT_EQ(order, expected.get<std::vector<int64_t>>())
        << "epoch " << loader.epoch() - 1 << " of seed " << vector.at("data_seed") << ", n " << n;
  }
}

TEST_F(OrderVectors, SeedableRandomSampler) {
  const nlohmann::json vectors = test::load_vectors("seedable_random_sampler.json");
  ASSERT_FALSE(vectors.empty());
  run(1,
      [&](const test::Rank&) {
        for (const auto& vector : vectors) ASSERT_NO_FATAL_FAILURE(check_order(vector));
      },
      {.launched = false});
}

}  // namespace
}  // namespace accelerate
