// Loaders over streams against the recorded behaviour of the reference.
#include <accelerate/batch_shard.h>

#include "golden/case_log.h"
#include "golden/loader_cases.h"
#include "golden/reference_data.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

// The reference accepts a batch that cannot be split (B4); this library refuses it.
bool is_refused(const json& vector) {
  return shows_bug(vector, "B4") || vector.contains("error") ||
         (vector.at("split_batches").get<bool>() &&
          vector.at("batch_size").get<int64_t>() % vector.at("num_processes").get<int64_t>() != 0);
}

std::vector<int64_t> joined(const Batches& batches) {
  std::vector<int64_t> samples;
  for (const auto& batch : batches) samples.insert(samples.end(), batch.begin(), batch.end());
  return samples;
}

void expect_stream_refusal(const auto& loader, const LoaderShard& shard, CaseLog& log) {
  try {
    (void)loader.sharded(shard);
    log.note("a batch that cannot be split was accepted");
  } catch (const UsageError&) {
  }
}

// What the rules of sharding say, without a loader. The reference counts samples, and with
// split_batches the wrong ones (B5).
void check_rules(const json& vector, CaseLog& log) {
  const int world_size = vector.at("num_processes");
  for (int rank = 0; rank < world_size; ++rank) {
    const BatchShard shard({.n = vector.at("n"),
                            .batch_size = vector.at("batch_size"),
                            .drop_last = vector.at("drop_last"),
                            .split_batches = vector.at("split_batches"),
                            .world_size = world_size,
                            .rank = rank});
    std::vector<int64_t> samples;
    for (int64_t k = 0; k < shard.rounds(); ++k) {
      const BatchShard::Round round = shard.round(k);
      for (int64_t i = 0; i < round.size; ++i) samples.push_back(shard.wrapped(round.first + i));
    }
    const auto r = static_cast<size_t>(rank);
    log.expect_equal("samples by the rules", samples,
                     vector.at("expected").at(r).get<std::vector<int64_t>>());
    if (shows_bug(vector, "B5")) continue;
    log.expect_equal("samples by the rules", samples.size(), vector.at("len").at(r).get<size_t>());
  }
}

// A single process does not shard: it has nobody to be even with, and repeats nothing.
std::vector<int64_t> expected_of_loader(const json& vector, size_t rank) {
  auto samples = vector.at("expected").at(rank).get<std::vector<int64_t>>();
  if (vector.at("num_processes") == 1) {
    samples.resize(std::min(samples.size(), vector.at("n").get<size_t>()));
  }
  return samples;
}

// What one rank reads; returns its real samples.
std::vector<int64_t> expect_stream_rank(const auto& loader, const json& vector,
                                        const LoaderShard& shard, CaseLog& log) {
  const std::string of_rank = " of rank " + std::to_string(shard.rank);
  const auto rank = static_cast<size_t>(shard.rank);
  const auto sharded = loader.sharded(shard);
  const SeenPass seen = see_pass(sharded);
  const auto samples = joined(seen.batches);
  log.expect_equal("samples" + of_rank, samples, expected_of_loader(vector, rank));
  std::vector<int64_t> real;
  for (size_t k = 0; k < seen.batches.size(); ++k) {
    const auto& batch = seen.batches[k];
    real.insert(real.end(), batch.begin(), batch.begin() + seen.valid[k]);
    log.expect_equal("is_last" + of_rank, static_cast<bool>(seen.is_last[k]),
                     k + 1 == seen.batches.size());
  }
  if (loader.dataset().size()) {
    log.expect_equal("length" + of_rank, sharded.size(), static_cast<int64_t>(seen.batches.size()));
  }
  return real;
}

void check_ranks(const auto& loader, const json& vector, CaseLog& log) {
  const int world_size = vector.at("num_processes");
  std::vector<int64_t> real;
  for (int rank = 0; rank < world_size; ++rank) {
    const LoaderShard shard{.rank = rank,
                            .world_size = world_size,
                            .split_batches = vector.at("split_batches").template get<bool>()};
    if (is_refused(vector)) {
      expect_stream_refusal(loader, shard, log);
      continue;
    }
    const auto of_rank = expect_stream_rank(loader, vector, shard, log);
    real.insert(real.end(), of_rank.begin(), of_rank.end());
  }
  if (is_refused(vector) || vector.at("drop_last").template get<bool>()) return;
  std::ranges::sort(real);
  std::vector<int64_t> all(vector.at("n").template get<size_t>());
  std::iota(all.begin(), all.end(), 0);
  log.expect_equal("real samples of all ranks", real, all);
}

struct StreamVectors : Ranks {};

TEST_F(StreamVectors, IterableDatasetShard) {
  const json vectors = load_vectors("iterable_dataset_shard.json");
  ASSERT_FALSE(vectors.empty());
  run(1,
      [&](const Rank&) {
        CaseLog log;
        for (const json& vector : vectors) {
          const LoaderOptions options{.batch_size = vector.at("batch_size").get<int64_t>(),
                                      .drop_last = vector.at("drop_last").get<bool>()};
          const int64_t n = vector.at("n");
          log.run(vector, [&] {
            if (!is_refused(vector)) check_rules(vector, log);
            check_ranks(data_loader(counted_stream(n), options), vector, log);
            check_ranks(data_loader(uncounted_stream(n), options), vector, log);
          });
        }
        log.report();
      },
      {.deadline = std::chrono::seconds(120), .launched = false});
}

}  // namespace
}  // namespace accelerate::test
