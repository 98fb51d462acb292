// Loaders over datasets that are read by index against the recorded behaviour of the reference.
#include <accelerate/batch_shard.h>

#include "golden/case_log.h"
#include "golden/loader_cases.h"
#include "golden/reference_data.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

// In a rank of its own: a program that forks ranks runs no code of libtorch itself.
struct DataVectors : Ranks {
  void check_each(const json& vectors, const std::function<void(const json&, CaseLog&)>& check) {
    run(1,
        [&](const Rank&) {
          CaseLog log;
          for (const json& vector : vectors) {
            log.run(vector, [&] { check(vector, log); });
          }
          log.report();
        },
        {.deadline = std::chrono::seconds(120), .launched = false});
  }
};

int64_t samples_of(const Batches& batches) {
  int64_t samples = 0;
  for (const auto& batch : batches) {
    for (const int64_t index : batch) samples = std::max(samples, index + 1);
  }
  return samples;
}

// What a rank yields, and that its length says so.
void expect_sampler_rank(const auto& loader, const json& vector, size_t rank, CaseLog& log) {
  const std::string of_rank = " of rank " + std::to_string(rank);
  const int64_t length = loader.size();
  const auto expected = vector.at("expected").at(rank).get<Batches>();
  log.expect_equal("batches" + of_rank, see_pass(loader).batches, expected);
  log.expect_equal("length" + of_rank, length, static_cast<int64_t>(expected.size()));
  if (vector.contains("upstream_bug")) return;  // those lengths are the reference's mistake
  log.expect_equal("length" + of_rank, length, vector.at("len").at(rank).get<int64_t>());
}

void check_whole_batches(const json& vector, CaseLog& log) {
  const auto batches = vector.at("batches").get<Batches>();
  const int world_size = vector.at("num_processes");
  const auto whole = data_loader(
      integers_below(samples_of(batches)),
      {.drop_last = vector.value("drop_last", false), .batch_sampler = batches_of(batches)});
  for (int rank = 0; rank < world_size; ++rank) {
    expect_sampler_rank(whole.sharded({.rank = rank,
                                       .world_size = world_size,
                                       .even_batches = vector.at("even_batches").get<bool>()}),
                        vector, static_cast<size_t>(rank), log);
  }
}

TEST_F(DataVectors, BatchSamplerShardDynamic) {
  const json vectors = load_vectors("batch_sampler_shard_dynamic.json");
  ASSERT_FALSE(vectors.empty());
  check_each(vectors, check_whole_batches);
}

// The batches of n samples, as a batch sampler that knows their size gives them.
Batches consecutive_batches(int64_t n, int64_t batch_size) {
  Batches batches;
  for (int64_t i = 0; i < n; ++i) {
    if (i % batch_size == 0) batches.emplace_back();
    batches.back().push_back(i);
  }
  return batches;
}

void check_sharded(const json& vector, CaseLog& log) {
  const int world_size = vector.at("num_processes");
  // A single process does not shard: it has nobody to be even with.
  if (world_size == 1) return;
  const int64_t n = vector.at("n");
  const int64_t batch_size = vector.at("batch_size");
  const bool drop_last = vector.at("drop_last");
  const auto by_size =
      data_loader(integers_below(n), {.batch_size = batch_size, .drop_last = drop_last});
  const auto by_sampler =
      data_loader(integers_below(n),
                  {.drop_last = drop_last,
                   .batch_sampler = batches_of(consecutive_batches(n, batch_size), batch_size)});
  for (int rank = 0; rank < world_size; ++rank) {
    const LoaderShard shard{.rank = rank,
                            .world_size = world_size,
                            .split_batches = vector.at("split_batches").get<bool>(),
                            .even_batches = vector.at("even_batches").get<bool>()};
    expect_sampler_rank(by_size.sharded(shard), vector, static_cast<size_t>(rank), log);
    expect_sampler_rank(by_sampler.sharded(shard), vector, static_cast<size_t>(rank), log);
  }
}

TEST_F(DataVectors, BatchSamplerShardThroughALoader) {
  const json vectors = load_vectors("batch_sampler_shard.json");
  ASSERT_FALSE(vectors.empty());
  check_each(vectors, check_sharded);
}

void check_skip(const json& vector, CaseLog& log) {
  const auto whole = data_loader(integers_below(vector.at("n")),
                                 {.batch_size = vector.at("batch_size").get<int64_t>(),
                                  .drop_last = vector.value("drop_last", false)});
  const auto all = see_pass(whole.skip_first_batches(0)).batches;
  const auto loader = data_loader(integers_below(vector.at("n")), whole.options())
                          .skip_first_batches(vector.at("skip").get<int64_t>());
  const int64_t length = loader.size();
  const auto expected = vector.at("expected").get<Batches>();
  log.expect_equal("batches", see_pass(loader).batches, expected);
  log.expect_equal("length", length, static_cast<int64_t>(expected.size()));
  // Where the reference cannot tell a length (B7), it is 0.
  if (vector.at("len").is_number()) {
    log.expect_equal("length", length, vector.at("len").get<int64_t>());
  }
  log.expect_equal("batches of the next epoch", see_pass(loader).batches, all);
}

TEST_F(DataVectors, SkipBatchSampler) {
  const json vectors = load_vectors("skip_batch_sampler.json");
  ASSERT_FALSE(vectors.empty());
  check_each(vectors, check_skip);
}

}  // namespace
}  // namespace accelerate::test
