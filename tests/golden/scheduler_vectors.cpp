// How far a prepared scheduler moves in each call, against the record of the reference.
#include <accelerate/prepared_scheduler.h>
#include <torch/torch.h>

#include <optional>
#include <regex>
#include <stdexcept>

#include "golden/case_log.h"
#include "golden/reference_data.h"
#include "support/training_doubles.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

constexpr Tolerance kRates{.absolute = 1e-12, .relative = 1e-12};

// B9: micro-batches that only accumulate are counted, which the reference means to do and does not.
std::vector<int64_t> intended_counts(const json& recorded) {
  auto counts = recorded.at("step_count_after_each_call").get<std::vector<int64_t>>();
  if (!recorded.contains("upstream_bug")) return counts;
  const int64_t accumulation_steps = recorded.at("accumulation_steps");
  int64_t missed = 0;
  for (size_t call = 0; call < counts.size(); ++call) {
    if ((static_cast<int64_t>(call) + 1) % accumulation_steps != 0) ++missed;
    counts[call] += missed;
  }
  return counts;
}

// A rate that falls to 0: "LambdaLR lr=1.0*(1-n/100)".
struct FallingRate {
  double first;
  double steps;
};

std::optional<FallingRate> rate_in_words(const std::string& words) {
  std::smatch found;
  const std::regex formula(R"(lr=([\d.]+)\*\(1-n/(\d+)\))");
  if (!std::regex_search(words, found, formula)) return std::nullopt;
  return FallingRate{std::stod(found[1]), std::stod(found[2])};
}

// Where the words do not say, it is that of the others.
FallingRate falling_rate(const json& recorded, const json& all) {
  if (const auto rate = rate_in_words(recorded.at("scheduler"))) return *rate;
  for (const json& other : all) {
    if (const auto rate = rate_in_words(other.at("scheduler"))) return *rate;
  }
  throw std::runtime_error("no rate in " + recorded.at("scheduler").dump());
}

void run_calls(const json& recorded, FallingRate rate, CaseLog& log) {
  torch::optim::SGD sgd({torch::zeros({1})}, rate.first);
  const Scheduler falling(
      sgd, lambda_lr([=](int64_t step) { return 1 - static_cast<double>(step) / rate.steps; }));
  const int64_t accumulation_steps = recorded.value("accumulation_steps", 1);
  const json skipped = recorded.value("skipped", json::array());
  int64_t call = 0;
  PreparedScheduler scheduler(
      falling,
      {.num_processes = recorded.at("num_processes").get<int>(),
       .split_batches = recorded.value("split_batches", false),
       .adjust_scheduler = recorded.value("adjust_scheduler", false)},
      {.step_with_optimizer = recorded.value("step_scheduler_with_optimizer", true)},
      std::make_shared<ScriptedSchedulerHost>(
          [&] { return call % accumulation_steps == 0; },
          [&] { return !skipped.empty() && skipped.at(static_cast<size_t>(call - 1)) == true; }));
  std::vector<double> rates;
  std::vector<int64_t> counts;
  for (size_t i = 0; i < recorded.at("lr_after_each_call").size(); ++i) {
    ++call;
    scheduler.step();
    rates.push_back(sgd.param_groups()[0].options().get_lr());
    counts.push_back(scheduler.scheduler().step_count());
  }
  log.expect_near("rates", rates, recorded.at("lr_after_each_call").get<std::vector<double>>(),
                  kRates);
  if (!recorded.contains("step_count_after_each_call")) return;
  log.expect_equal("step counts", counts, intended_counts(recorded));
}

void run_to_the_end(const json& recorded, int64_t total_steps, CaseLog& log) {
  torch::optim::SGD sgd({torch::zeros({1})}, torch::optim::SGDOptions(0.1).momentum(0.9));
  PreparedScheduler scheduler(
      Scheduler(sgd, one_cycle_lr({.max_lr = 1.0, .total_steps = total_steps})),
      {.num_processes = recorded.at("num_processes").get<int>()});
  std::vector<int64_t> epochs;
  for (size_t i = 0; i < recorded.at("last_epoch_after_each_call").size(); ++i) {
    scheduler.step();
    epochs.push_back(scheduler.scheduler().last_epoch());
  }
  log.expect_equal("steps", epochs,
                   recorded.at("last_epoch_after_each_call").get<std::vector<int64_t>>());
}

TEST(Vectors, Scheduler) {
  const json vectors = load_vectors("scheduler.json");
  CaseLog log;
  for (const json& recorded : vectors) {
    log.run(inputs_of(recorded), [&] {
      const std::string words = recorded.at("scheduler");
      std::smatch found;
      if (std::regex_match(words, found, std::regex(R"(OneCycleLR total_steps=(\d+))"))) {
        run_to_the_end(recorded, std::stoll(found[1]), log);
      } else if (words.starts_with("LambdaLR")) {
        run_calls(recorded, falling_rate(recorded, vectors), log);
      } else {
        log.note("no test for " + words);
      }
    });
  }
  log.report();
}

}  // namespace
}  // namespace accelerate::test
