// Runs of DeepSpeed's own engine, trained again from their own configuration: the same losses,
// rates, norms and weights.
#include <accelerate/accelerate.h>
#include <stdlib.h>
#include <torch/torch.h>

#include "golden/case_log.h"
#include "golden/reference_data.h"
#include "golden/training_replay.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

// As fixtures/README.md says.
constexpr Tolerance kEngineNumbers{.absolute = 1e-5, .relative = 1e-5};
constexpr Tolerance kEngineRates{.absolute = 1e-12, .relative = 1e-9};

constexpr const char* kRecordedModel =
    "Sequential(Linear, Tanh, Linear), cross entropy, mean over the rows of a rank";

// Whether the program has something that stands for the schedule of the configuration, or leaves it
// to the updates.
enum class SchedulePassed { kNo, kYes };

// What the launcher would tell this process.
void tell_configuration(const json& config) {
  setenv("ACCELERATE_USE_DEEPSPEED", "true", 1);
  setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", config.dump().c_str(), 1);
}

torch::nn::Sequential recorded_model(const json& recorded) {
  const std::vector<int64_t> sizes = recorded.at("sizes");
  torch::nn::Sequential model(torch::nn::Linear(sizes.at(0), sizes.at(1)), torch::nn::Tanh(),
                              torch::nn::Linear(sizes.at(1), sizes.at(2)));
  const torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    const json& initial = recorded.at("initial").at(item.key());
    item.value().copy_(initial.front().is_array()
                           ? matrix(initial)
                           : torch::tensor(initial.get<std::vector<double>>()).to(at::kFloat));
  }
  return model;
}

std::vector<double> flat_numbers(const json& tensor) {
  if (!tensor.front().is_array()) return tensor.get<std::vector<double>>();
  std::vector<double> numbers;
  for (const json& row : tensor) {
    for (const json& number : row) numbers.push_back(number);
  }
  return numbers;
}

// One case on one rank, as a program would train that knows nothing of its configuration.
class EngineRun {
 public:
  EngineRun(const json& recorded, CaseLog& log) : recorded_(recorded), log_(log) {}

  void train(SchedulePassed schedule) {
    torch::nn::Sequential net = recorded_model(recorded_);
    const ConfiguredOptimizer described(net->parameters());
    auto [model, optimizer] = accelerator_.prepare(net, described);
    std::optional<PreparedScheduler> scheduler;
    if (schedule == SchedulePassed::kYes && recorded_.at("config").contains("scheduler")) {
      scheduler.emplace(accelerator_.prepare(ConfiguredScheduler(described)));
    }
    const json& steps = recorded_.at("steps");
    for (size_t number = 0; number < steps.size(); ++number) {
      const std::string here = " in micro-step " + std::to_string(number);
      const json& step = steps.at(number);
      const auto micro_batch = accelerator_.accumulate(model);
      const at::Tensor loss = torch::nn::functional::cross_entropy(
          model(own_rows(matrix(step.at("input")))),
          own_rows(torch::tensor(step.at("target").get<std::vector<int64_t>>())));
      log_.expect_near("loss" + here, {loss.item<double>()},
                       {step.at("loss_of_rank").at(rank()).get<double>()}, kEngineNumbers);
      accelerator_.backward(loss);
      const auto rates = [&, &optimizer = optimizer] {
        return optimizer.param_groups().front().options().get_lr();
      };
      log_.expect_near("rate" + here, {rates()}, {step.at("lr_used_if_update").get<double>()},
                       kEngineRates);
      if (accelerator_.sync_gradients() && !step.at("grad_norm").is_null()) {
        log_.expect_near("norm" + here, {accelerator_.grad_norm(net->parameters()).item<double>()},
                         {step.at("grad_norm").get<double>()}, kEngineNumbers);
      }
      optimizer.step();
      if (scheduler) scheduler->step();
      optimizer.zero_grad();
      log_.expect_near("rate after" + here, {rates()},
                       step.at("lr_after").get<std::vector<double>>(), kEngineRates);
      log_.expect_equal<int64_t>("updates after" + here, optimizer.step_count(),
                                 step.at("updates_after"));
    }
    const auto whole = accelerator_.full_parameters(model);
    for (const auto& item : net->named_parameters()) {
      log_.expect_near("final " + item.key(), values_of(item.value()),
                       flat_numbers(recorded_.at("final").at(item.key())), kEngineNumbers);
    }
  }

  std::string strategy() const { return accelerator_.strategy_name(); }

 private:
  size_t rank() const { return static_cast<size_t>(accelerator_.process_index()); }
  at::Tensor own_rows(const at::Tensor& rows) const {
    const int64_t own = rows.size(0) / accelerator_.num_processes();
    return rows.narrow(0, accelerator_.process_index() * own, own);
  }

  const json& recorded_;
  CaseLog& log_;
  Accelerator accelerator_{{.cpu = true}};
};

struct DeepspeedTraining : Ranks {
  void train_all(SchedulePassed schedule) {
    const json all = load_fixture("deepspeed_training.json");
    ASSERT_EQ(all.at("model"), kRecordedModel);
    ASSERT_EQ(all.at("precision"), "float32");
    std::map<int, std::vector<json>> cases;
    for (const json& recorded : all.at("cases")) {
      cases[recorded.at("ranks").get<int>()].push_back(recorded);
    }
    for (const auto& [ranks, of_ranks] : cases) {
      run(ranks, [&, &of_ranks = of_ranks](const Rank&) {
        CaseLog log;
        for (const json& recorded : of_ranks) {
          log.run({{"id", recorded.at("id")}, {"config", recorded.at("config")}}, [&] {
            tell_configuration(recorded.at("config"));
            EngineRun run(recorded, log);
            const bool is_sharded = recorded.at("config").at("zero_optimization").at("stage") != 0;
            log.expect_equal<std::string>("strategy", run.strategy(), is_sharded ? "zero" : "ddp");
            run.train(schedule);
          });
        }
        log.report();
      });
    }
  }
};

TEST_F(DeepspeedTraining, TheConfigurationAloneTrainsToTheRecordedWeights) {
  train_all(SchedulePassed::kNo);
}

TEST_F(DeepspeedTraining, SoItDoesWhereTheProgramAdvancesTheSchedule) {
  train_all(SchedulePassed::kYes);
}

}  // namespace
}  // namespace accelerate::test
