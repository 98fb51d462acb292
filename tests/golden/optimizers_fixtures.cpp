// Updates of prepared optimizers against those that torch recorded, step by step.
#include <accelerate/grad_scaler.h>
#include <accelerate/prepared_optimizer.h>
#include <torch/torch.h>

#include <limits>
#include <map>
#include <regex>
#include <set>
#include <stdexcept>

#include "golden/case_log.h"
#include "golden/recorded_arguments.h"
#include "golden/recorded_optimizers.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

constexpr Tolerance kUpdates{.absolute = 2e-6, .relative = 2e-6};

at::Tensor parameter_of(const json& values, const json& shape) {
  return torch::tensor(recorded_numbers(values), at::kDouble)
      .view(shape.get<std::vector<int64_t>>())
      .to(at::kFloat);
}

std::vector<double> flat_values(const at::Tensor& tensor) {
  const at::Tensor doubles = tensor.detach().to(at::kDouble).contiguous();
  return {doubles.data_ptr<double>(), doubles.data_ptr<double>() + doubles.numel()};
}

// What torch::optim does not have of a case, "" if nothing.
std::string missing_in_cpp(const json& recorded) {
  if (!has_recorded_optimizer(recorded.at("optimizer"))) return recorded.at("optimizer");
  for (const json& group : recorded.at("resolved_groups")) {
    if (group.value("maximize", false)) return "maximize";
  }
  return "";
}

class UpdateRun {
 public:
  UpdateRun(const json& all, const json& recorded, CaseLog& log)
      : recorded_(recorded),
        sequence_(all.at("sequences").at(recorded.at("sequence"))),
        type_(recorded.at("optimizer")),
        log_(log) {
    for (size_t i = 0; i < sequence_.at("params").size(); ++i) {
      parameters_.push_back(parameter_of(sequence_.at("params").at(i), sequence_.at("shapes").at(i))
                                .requires_grad_());
    }
    const json& resolved = recorded_.at("resolved_groups");
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (size_t g = 0; g < resolved.size(); ++g) {
      groups.emplace_back(parameters_of_group(g),
                          recorded_optimizer_options(type_, options_of_group(g)));
    }
    optimizer_ = recorded_optimizer(type_, groups, options_of_group(0));
  }

  void run() {
    PreparedOptimizer prepared(optimizer_);
    for (size_t step = 0; step < sequence_.at("grads").size(); ++step) {
      if (is_given(recorded_, "lr_before_each_step")) {
        set_rates(prepared, recorded_.at("lr_before_each_step").at(step));
      }
      set_gradients(sequence_.at("grads").at(step));
      prepared.step();
      compare_parameters(step);
    }
    compare_state();
  }

 private:
  // Where the rate changes the last one is recorded. It is set before each step.
  json options_of_group(size_t group) const { return recorded_.at("resolved_groups").at(group); }

  // One rate for all groups, or one for each.
  static void set_rates(PreparedOptimizer& optimizer, const json& rates) {
    auto& groups = optimizer.param_groups();
    for (size_t g = 0; g < groups.size(); ++g) {
      groups[g].options().set_lr((rates.is_array() ? rates.at(g) : rates).get<double>());
    }
  }

  std::vector<at::Tensor> parameters_of_group(size_t group) const {
    if (!is_given(recorded_, "groups")) return parameters_;
    std::vector<at::Tensor> chosen;
    for (const json& index : recorded_.at("groups").at(group).at("params")) {
      chosen.push_back(parameters_.at(index.get<size_t>()));
    }
    return chosen;
  }

  void set_gradients(const json& gradients) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].mutable_grad() =
          gradients.at(i).is_null() ? at::Tensor()
                                    : parameter_of(gradients.at(i), sequence_.at("shapes").at(i));
    }
  }

  void compare_parameters(size_t step) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const std::string what =
          "parameter " + std::to_string(i) + " after step " + std::to_string(step + 1);
      const std::vector<double> own = flat_values(parameters_[i]);
      log_.expect_near(what, own,
                       recorded_numbers(recorded_.at("params_after_each_step").at(step).at(i)),
                       kUpdates);
      if (!is_given(recorded_, "fused_params_after_each_step")) continue;
      log_.expect_near(
          what + ", fused", own,
          recorded_numbers(recorded_.at("fused_params_after_each_step").at(step).at(i)), kUpdates);
    }
  }

  void compare_state() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto found = optimizer_->state().find(parameters_[i].unsafeGetTensorImpl());
      std::map<std::string, std::vector<double>> own;
      if (found != optimizer_->state().end()) own = state_of_parameter(type_, *found->second);
      const json& expected = recorded_.at("state_after_last_step").at(i);
      log_.expect_equal("number of state entries of parameter " + std::to_string(i), own.size(),
                        expected.size());
      for (const auto& [name, values] : expected.items()) {
        log_.expect_near(name + " of parameter " + std::to_string(i), own[name],
                         values.is_array() ? recorded_numbers(values)
                                           : std::vector<double>{recorded_number(values)},
                         kUpdates);
      }
    }
  }

  const json& recorded_;
  const json& sequence_;
  const std::string type_;
  CaseLog& log_;
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
};

TEST(Fixtures, UpdatesOfPreparedOptimizers) {
  const json fixture = load_fixture("optimizers.json");
  CaseLog log;
  for (const json& recorded : fixture.at("cases")) {
    if (!missing_in_cpp(recorded).empty()) continue;
    log.run(inputs_of(recorded), [&] { UpdateRun(fixture, recorded, log).run(); });
  }
  log.report();
}

TEST(Fixtures, UpdatesThatTorchInCppHasNoOptionFor) {
  const json fixture = load_fixture("optimizers.json");
  std::map<std::string, int> cases;
  for (const json& recorded : fixture.at("cases")) {
    const std::string missing = missing_in_cpp(recorded);
    if (!missing.empty()) ++cases[missing];
  }
  if (!cases.empty()) GTEST_SKIP() << "cases by what is missing: " << json(cases).dump();
}

// "SGD(lr=0.1, momentum=0.9), params start at [1, -2]; ...": the optimizer and its first
// parameters.
struct ScaledTraining {
  explicit ScaledTraining(const std::string& words) {
    std::smatch found;
    const std::regex pattern(R"((\w+)\(([^)]*)\), params start at (\[[^\]]*\]))");
    if (!std::regex_search(words, found, pattern)) throw std::runtime_error("no test for " + words);
    json settings{{"type", found[1].str()}};
    const std::string arguments = found[2];
    const std::regex argument(R"((\w+)=([^,]+))");
    for (std::sregex_iterator next(arguments.begin(), arguments.end(), argument), end; next != end;
         ++next) {
      const std::string value = (*next)[2];
      settings[(*next)[1].str()] =
          value == "True" || value == "False" ? json(value == "True") : json::parse(value);
    }
    const auto first = json::parse(found[3].str()).get<std::vector<double>>();
    parameters = torch::tensor(first, at::kDouble).to(at::kFloat).requires_grad_();
    optimizer = recorded_optimizer(settings, {parameters});
  }

  at::Tensor parameters;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

void run_scaled_training(const json& recorded, CaseLog& log) {
  ScaledTraining training(recorded.at("optimizer"));
  GradScaler scaler({.init_scale = recorded.at("init_scale").get<double>(),
                     .growth_factor = recorded.at("growth_factor").get<double>(),
                     .backoff_factor = recorded.at("backoff_factor").get<double>(),
                     .growth_interval = recorded.at("growth_interval").get<int64_t>(),
                     .enabled = recorded.at("enabled").get<bool>()});
  const auto broken = recorded.at("non_finite_gradient_at_steps").get<std::set<size_t>>();
  const json& steps = recorded.at("steps");
  if (steps.empty()) log.note("no step is recorded");
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string after = " after step " + std::to_string(i);
    at::Tensor gradient = torch::tensor(recorded.at("g").at(i).get<std::vector<double>>());
    if (broken.contains(i)) gradient[0] = std::numeric_limits<double>::infinity();
    training.optimizer->zero_grad();
    scaler.scale((training.parameters * gradient.to(at::kFloat)).sum()).backward();
    scaler.step(*training.optimizer);
    scaler.update();
    const json& expected = steps.at(i);
    log.expect_equal("skipped" + after, scaler.step_was_skipped(*training.optimizer),
                     expected.at("optimizer_step_skipped").get<bool>());
    log.expect_near("parameters" + after, flat_values(training.parameters),
                    recorded_numbers(expected.at("params")), kUpdates);
    if (!recorded.at("enabled").get<bool>()) continue;
    log.expect_equal("scale" + after, scaler.scale_factor(),
                     expected.at("scale_after").get<double>());
    log.expect_equal("growth tracker" + after, scaler.growth_tracker(),
                     expected.at("growth_tracker_after").get<int64_t>());
  }
}

TEST(Fixtures, UpdatesWithAGradScaler) {
  const json fixture = load_fixture("optimizers.json");
  CaseLog log;
  for (const json& recorded : fixture.at("grad_scaler")) {
    log.run(recorded.at("optimizer"), [&] { run_scaled_training(recorded, log); });
  }
  log.report();
}

}  // namespace
}  // namespace accelerate::test
