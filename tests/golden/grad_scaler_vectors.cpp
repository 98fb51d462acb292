// The course of the loss scale over iterations with and without overflow.
#include <accelerate/grad_scaler.h>
#include <torch/torch.h>

#include <limits>

#include "golden/case_log.h"
#include "golden/reference_data.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

GradScalerOptions options_of(const json& arguments) {
  const GradScalerOptions defaults;
  return {.init_scale = arguments.value("init_scale", defaults.init_scale),
          .growth_factor = arguments.value("growth_factor", defaults.growth_factor),
          .backoff_factor = arguments.value("backoff_factor", defaults.backoff_factor),
          .growth_interval = arguments.value("growth_interval", defaults.growth_interval),
          .enabled = arguments.value("enabled", defaults.enabled)};
}

void run_case(const json& recorded, CaseLog& log) {
  GradScaler scaler(options_of(recorded.at("args")));
  auto weight = torch::zeros({1}, torch::requires_grad());
  torch::optim::SGD sgd({weight}, 1.0);
  size_t iteration = 0;
  for (const json& expected : recorded.at("trace")) {
    const bool overflow = expected.at("found_inf");
    sgd.zero_grad();
    const double slope = overflow ? std::numeric_limits<double>::infinity() : 1.0;
    scaler.scale((weight * slope).sum()).backward();
    scaler.step(sgd);
    scaler.update();
    const std::string after = " after iteration " + std::to_string(iteration++);
    log.expect_equal("skipped" + after, scaler.step_was_skipped(sgd),
                     expected.at("optimizer_step_skipped").get<bool>());
    log.expect_equal("scale" + after, scaler.scale_factor(),
                     expected.at("scale_after").get<double>());
    log.expect_equal("growth tracker" + after, scaler.growth_tracker(),
                     expected.at("growth_tracker_after").get<int64_t>());
  }
}

struct GradScalerVectors : Ranks {};

TEST_F(GradScalerVectors, ScaleAndSkippedSteps) {
  const json all = load_vectors("grad_scaler.json");
  run(1, [&](const Rank&) {
    const json& defaults = all.at("defaults");
    const GradScalerOptions options;
    EXPECT_EQ(options.init_scale, defaults.at("init_scale").get<double>());
    EXPECT_EQ(options.growth_factor, defaults.at("growth_factor").get<double>());
    EXPECT_EQ(options.backoff_factor, defaults.at("backoff_factor").get<double>());
    EXPECT_EQ(options.growth_interval, defaults.at("growth_interval").get<int64_t>());
    EXPECT_EQ(options.enabled, defaults.at("enabled").get<bool>());
    CaseLog log;
    for (const json& recorded : all.at("cases")) {
      log.run(recorded.at("args"), [&] { run_case(recorded, log); });
    }
    log.report();
  });
}

}  // namespace
}  // namespace accelerate::test
