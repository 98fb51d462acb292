// What the reference gets wrong and this library means to do right, topic by topic.
#include <accelerate/accelerate.h>
#include <accelerate/operations.h>
#include <accelerate/prepared_scheduler.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "golden/loader_cases.h"
#include "golden/reference_data.h"
#include "support/ranks.h"
#include "support/training_doubles.h"

namespace accelerate::test {
namespace {

constexpr int kRanks = 4;

std::vector<int64_t> numbers_up_to(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Accelerator dispatching() {
  return Accelerator({.cpu = true, .data_loader = {.dispatch_batches = true}});
}

// B1: what only evens out the last batch of a stream is known, and can be left out.
void expect_real_samples_of_a_stream() {
  Accelerator accelerator({.cpu = true});
  const auto check = [&](const auto& whole, int64_t n) {
    const auto loader = accelerator.prepare(whole);
    std::vector<int64_t> seen;
    for (const auto& batch : loader) {
      const at::Tensor real = batch.data.masked_select(batch.info().valid_mask());
      const auto of_round =
          integers_of(torch::cat(accelerator.communicator().all_gather_ragged(real)));
      seen.insert(seen.end(), of_round.begin(), of_round.end());
    }
    ASSERT_EQ(seen, numbers_up_to(n));
  };
  for (const int64_t n : {1, 3, 8, 9, 13}) {
    check(data_loader(counted_stream(n), {.batch_size = 2}), n);
    check(data_loader(uncounted_stream(n), {.batch_size = 2}), n);
  }
}

// B2: where no batch can be made, dispatching yields none.
void expect_an_empty_pass() {
  Accelerator accelerator = dispatching();
  const LoaderOptions options{.batch_size = 2, .drop_last = true};
  for (const int64_t n : {0, 1, kRanks * 2 - 1}) {
    EXPECT_EQ(see_pass(accelerator.prepare(data_loader(integers_below(n), options))).batches,
              Batches{});
    EXPECT_EQ(see_pass(accelerator.prepare(data_loader(counted_stream(n), options))).batches,
              Batches{});
    EXPECT_EQ(see_pass(accelerator.prepare(data_loader(uncounted_stream(n), options))).batches,
              Batches{});
  }
}

// B3: a first batch smaller than the number of ranks goes round until all have as much.
void expect_small_first_batches_to_go_round() {
  Accelerator accelerator = dispatching();
  for (const int64_t n : {1, 2, 3}) {
    const Batches expected{{accelerator.process_index() % n}};
    EXPECT_EQ(
        see_pass(accelerator.prepare(data_loader(integers_below(n), {.batch_size = 2}))).batches,
        expected);
    EXPECT_EQ(
        see_pass(accelerator.prepare(data_loader(uncounted_stream(n), {.batch_size = 2}))).batches,
        expected);
  }
}

// B4: a batch that cannot be split is refused.
void expect_refusal_of_batches_that_cannot_be_split() {
  for (const int64_t batch_size : {1, 2, 3, 5}) {
    const auto loader = data_loader(counted_stream(10), {.batch_size = batch_size});
    EXPECT_THROW((void)loader.sharded({.world_size = kRanks, .split_batches = true}), UsageError);
  }
}

template <class Loader>
void expect_length_is_what_is_yielded(const Loader& loader) {
  const int64_t length = loader.size();
  ASSERT_EQ(length, static_cast<int64_t>(see_pass(loader).batches.size()));
}

// B5, B6: the length of a loader is the number of batches that it yields.
void expect_lengths_of(const auto& make) {
  for (const int64_t n : {0, 1, 5, 7, 8, 12, 13}) {
    for (const bool drop_last : {true, false}) {
      for (const bool split : {true, false}) {
        for (const bool even : {true, false}) {
          for (int rank = 0; rank < 3; ++rank) {
            SCOPED_TRACE(nlohmann::json({n, drop_last, split, even, rank}).dump());
            const LoaderOptions options{.batch_size = split ? 6 : 2, .drop_last = drop_last};
            ASSERT_NO_FATAL_FAILURE(
                expect_length_is_what_is_yielded(data_loader(make(n), options)
                                                     .sharded({.rank = rank,
                                                               .world_size = 3,
                                                               .split_batches = split,
                                                               .even_batches = even})));
          }
        }
      }
    }
  }
}

// B9: where gradients only accumulate, the rate stays and the step is counted.
void expect_accumulation_is_counted() {
  torch::optim::SGD sgd({torch::zeros({1})}, 1.0);
  bool sync_gradients = false;
  PreparedScheduler scheduler(
      Scheduler(sgd, exponential_lr({.gamma = 0.5})), {}, {},
      std::make_shared<ScriptedSchedulerHost>([&] { return sync_gradients; }));
  scheduler.step();
  ASSERT_EQ(sgd.param_groups()[0].options().get_lr(), 1.0);
  ASSERT_EQ(scheduler.scheduler().step_count(), 2);
  sync_gradients = true;
  scheduler.step();
  ASSERT_EQ(sgd.param_groups()[0].options().get_lr(), 0.5);
  ASSERT_EQ(scheduler.scheduler().step_count(), 3);
}

// B7: nothing is left where more is skipped than there is.
void expect_no_length_below_zero() {
  const auto loader = data_loader(integers_below(7), {.batch_size = 2});
  for (const int64_t skipped : {4, 5, 100}) {
    const auto rest = loader.skip_first_batches(skipped);
    EXPECT_EQ(rest.size(), 0) << skipped;
  }
}

// B8: a reduction by "none" leaves every rank its own.
void expect_no_reduction_by_none() {
  Accelerator accelerator({.cpu = true});
  const at::Tensor own = torch::full({2}, accelerator.process_index());
  EXPECT_TRUE(reduce(accelerator.communicator(), own, "none").equal(own));
}

// B12: a padded batch can be shared by all, and what is added repeats its last row.
void expect_padding_to_the_next_multiple() {
  for (int64_t batch_size = 1; batch_size < 20; ++batch_size) {
    const at::Tensor padded =
        pad_input_tensors(torch::arange(batch_size), batch_size, int64_t{kRanks});
    EXPECT_EQ(padded.size(0), (batch_size + kRanks - 1) / kRanks * kRanks);
    EXPECT_TRUE(padded.equal(torch::arange(padded.size(0)).clamp_max(batch_size - 1)));
  }
}

// On all ranks at once.
const std::map<std::string, std::function<void()>>& bug_checks() {
  static const std::map<std::string, std::function<void()>> table{
      {"B1", expect_real_samples_of_a_stream},
      {"B2", expect_an_empty_pass},
      {"B3", expect_small_first_batches_to_go_round},
      {"B4", expect_refusal_of_batches_that_cannot_be_split},
      {"B5", [] { expect_lengths_of(counted_stream); }},
      {"B6", [] { expect_lengths_of(integers_below); }},
      {"B7", expect_no_length_below_zero},
      {"B8", expect_no_reduction_by_none},
      {"B9", expect_accumulation_is_counted},
      {"B12", expect_padding_to_the_next_multiple}};
  return table;
}

struct ReferenceBugs : Ranks {};

TEST_F(ReferenceBugs, AreNotCopied) {
  const nlohmann::json bugs = load_vectors("known_reference_bugs.json");
  ASSERT_TRUE(std::ranges::any_of(bugs, [](const auto& bug) {
    return bug_checks().contains(bug.at("id").template get<std::string>());
  }));
  run(kRanks, [&](const Rank&) {
    for (const auto& bug : bugs) {
      const auto check = bug_checks().find(bug.at("id"));
      if (check == bug_checks().end()) continue;
      SCOPED_TRACE(bug.dump());
      check->second();
    }
  });
}

// Those that need settings or a whole training are checked where these are replayed.
TEST(Vectors, EveryKnownReferenceBugHasATest) {
  const std::set<std::string> checked_elsewhere{"B10",   // launch_env_vectors.cpp
                                                "B11"};  // training_vectors.cpp
  for (const auto& bug : load_vectors("known_reference_bugs.json")) {
    const std::string id = bug.at("id");
    EXPECT_TRUE(bug_checks().contains(id) || checked_elsewhere.contains(id)) << bug.dump();
  }
}

}  // namespace
}  // namespace accelerate::test
