// What the reference gets wrong and this library means to do right, topic by topic.
#include <accelerate/data_loader.h>
#include <accelerate/dataset.h>
#include <accelerate/prepared_scheduler.h>
#include <torch/torch.h>

#include <functional>
#include <map>

#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

// B6: the length of a loader is the number of batches that it yields.
void expect_length_is_what_is_yielded() {
  for (const int64_t n : {1, 5, 7, 8, 12, 13}) {
    for (const bool split : {true, false}) {
      for (const bool even : {true, false}) {
        for (int rank = 0; rank < 3; ++rank) {
          const auto loader = data_loader(TensorDataset(torch::arange(n), torch::arange(n)),
                                          {.batch_size = split ? 6 : 2})
                                  .sharded({.rank = rank,
                                            .world_size = 3,
                                            .split_batches = split,
                                            .even_batches = even});
          int64_t batches = 0;
          for ([[maybe_unused]] const auto& batch : loader) ++batches;
          ASSERT_EQ(loader.size(), batches)
              << "n " << n << ", rank " << rank << ", split " << split << ", even " << even;
        }
      }
    }
  }
}

// B9: where gradients only accumulate, the rate stays and the step is counted.
void expect_accumulation_is_counted() {
  torch::optim::SGD sgd({torch::zeros({1})}, 1.0);
  bool sync_gradients = false;
  PreparedScheduler scheduler(Scheduler(sgd, exponential_lr({.gamma = 0.5})),
                              {.sync_gradients = [&] { return sync_gradients; }});
  scheduler.step();
  ASSERT_EQ(sgd.param_groups()[0].options().get_lr(), 1.0);
  ASSERT_EQ(scheduler.scheduler().step_count(), 2);
  sync_gradients = true;
  scheduler.step();
  ASSERT_EQ(sgd.param_groups()[0].options().get_lr(), 0.5);
  ASSERT_EQ(scheduler.scheduler().step_count(), 3);
}

const std::map<std::string, std::function<void()>>& checks() {
  static const std::map<std::string, std::function<void()>> table{
      {"B6", expect_length_is_what_is_yielded}, {"B9", expect_accumulation_is_counted}};
  return table;
}

TEST(Vectors, KnownReferenceBugs) {
  LOAD_VECTORS_OR_SKIP(bugs, "known_reference_bugs.json");
  for (const auto& bug : bugs) {
    const auto check = checks().find(bug.at("id"));
    if (check == checks().end()) continue;
    SCOPED_TRACE(bug.dump());
    check->second();
    if (HasFatalFailure()) return;
  }
}

TEST(Vectors, KnownReferenceBugsOfTopicsThatAreNotBuilt) {
  LOAD_VECTORS_OR_SKIP(bugs, "known_reference_bugs.json");
  std::string untested;
  for (const auto& bug : bugs) {
    if (checks().count(bug.at("id")) > 0) continue;
    untested += ' ' + bug.at("id").get<std::string>();
    untested += " (" + bug.at("section").get_ref<const std::string&>() + ")";
  }
  if (!untested.empty()) GTEST_SKIP() << "no test yet for" << untested;
}

}  // namespace
}  // namespace accelerate::test
