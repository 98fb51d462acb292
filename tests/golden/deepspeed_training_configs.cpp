// The configurations of the runs that DeepSpeed's own engine made: they are understood, and the
// rates of their schedules are those that it used.
#include "config/sharding/deepspeed_plan.h"
#include "config/sharding/warmup_schedule.h"
#include "golden/case_log.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

constexpr Tolerance kRates{.absolute = 1e-12, .relative = 1e-9};

config::DeepspeedPlan plan_of(const json& recorded) {
  const config::DeepspeedDocument document =
      config::parse_deepspeed(recorded.at("config").dump(), "config");
  return config::deepspeed_plan(document, recorded.at("ranks").get<int>());
}

// The rates of all groups, of which the recording tells, after so many updates.
std::vector<double> rates_after(const config::DeepspeedPlan& plan, int64_t updates, size_t groups) {
  const std::vector<double> initial(groups, plan.optimizer.value().lr);
  if (!plan.scheduler) return initial;
  std::vector<double> rates;
  for (size_t group = 0; group < groups; ++group) {
    rates.push_back(config::warmup_rate(*plan.scheduler, updates, initial, group));
  }
  return rates;
}

TEST(DeepspeedTrainingConfigs, RatesAreThoseThatTheEngineUsed) {
  const json all = load_fixture("deepspeed_training.json");
  CaseLog log;
  for (const json& recorded : all.at("cases")) {
    log.run({{"id", recorded.at("id")}, {"config", recorded.at("config")}}, [&] {
      const config::DeepspeedPlan plan = plan_of(recorded);
      int64_t updates = 0;
      for (const json& step : recorded.at("steps")) {
        const std::vector<double> after = step.at("lr_after");
        log.expect_near("the rate before update " + std::to_string(updates),
                        {rates_after(plan, updates, after.size()).front()},
                        {step.at("lr_used_if_update").get<double>()}, kRates);
        updates = step.at("updates_after");
        log.expect_near("the rates after " + std::to_string(updates) + " updates",
                        rates_after(plan, updates, after.size()), after, kRates);
      }
    });
  }
  log.report();
}

TEST(DeepspeedTrainingConfigs, UpdatesComeAsOftenAsTheConfigurationSays) {
  const json all = load_fixture("deepspeed_training.json");
  CaseLog log;
  for (const json& recorded : all.at("cases")) {
    log.run({{"id", recorded.at("id")}, {"config", recorded.at("config")}}, [&] {
      const config::DeepspeedPlan plan = plan_of(recorded);
      int64_t batches = 0;
      for (const json& step : recorded.at("steps")) {
        ++batches;
        log.expect_equal<int64_t>("updates", batches / plan.batch.accumulation_steps,
                                  step.at("updates_after"));
        // Each micro-step holds the rows of all ranks.
        log.expect_equal<int64_t>(
            "rows", plan.batch.total,
            static_cast<int64_t>(step.at("input").size()) * plan.batch.accumulation_steps);
      }
    });
  }
  log.report();
}

TEST(DeepspeedTrainingConfigs, EveryValueOfAConfigurationIsInItsPlan) {
  const json all = load_fixture("deepspeed_training.json");
  CaseLog log;
  for (const json& recorded : all.at("cases")) {
    const json& given = recorded.at("config");
    log.run({{"id", recorded.at("id")}, {"config", given}}, [&] {
      const config::DeepspeedPlan plan = plan_of(recorded);
      const json& zero = given.at("zero_optimization");
      log.expect_equal<json>("stage", plan.zero.stage, zero.at("stage"));
      log.expect_equal<json>("threshold", plan.zero.persistence_threshold,
                             zero.at("stage3_param_persistence_threshold"));
      log.expect_equal<json>("norm", plan.max_norm, given.at("gradient_clipping"));
      const json& params = given.at("optimizer").at("params");
      log.expect_equal<json>("lr", plan.optimizer.value().lr, params.at("lr"));
      const auto compare = [&](const char* key, double value) {
        if (params.contains(key)) log.expect_equal<json>(key, value, params.at(key));
      };
      compare("weight_decay", plan.optimizer->weight_decay);
      compare("momentum", plan.optimizer->momentum);
      compare("eps", plan.optimizer->eps);
      if (params.contains("betas")) {
        log.expect_equal<json>("betas", plan.optimizer->betas, params.at("betas"));
      }
      log.expect_equal<json>("scheduler", plan.scheduler.has_value(), given.contains("scheduler"));
      log.expect_equal<bool>("float32", plan.precision.dtype == config::PlanDtype::kFloat32,
                             all.at("precision") == "float32");
    });
  }
  log.report();
}

// Those beside the checkpoints that the engine saved.
TEST(DeepspeedTrainingConfigs, ConfigurationsOfSavedRunsAreUnderstood) {
  const std::string saved = "deepspeed_checkpoints";
  CaseLog log;
  for (const auto& folder : fixture_folders(saved)) {
    const json recorded = load_fixture(saved + "/" + folder.filename().string() + "/meta.json");
    log.run(recorded.at("config"), [&] {
      const config::DeepspeedPlan plan = plan_of(recorded);
      log.expect_equal<json>("stage", plan.zero.stage, recorded.at("stage"));
      const json bf16 =
          recorded.at("config").value(json::json_pointer("/bf16/enabled"), json(false));
      log.expect_equal<json>("bf16", plan.precision.dtype == config::PlanDtype::kBfloat16, bf16);
    });
  }
  log.report();
}

}  // namespace
}  // namespace accelerate::test
