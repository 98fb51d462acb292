// Updates of prepared optimizers against those that torch recorded, step by step.
#include <accelerate/prepared_optimizer.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <map>

#include "golden/case_log.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

constexpr Tolerance kUpdates{.absolute = 2e-6, .relative = 2e-6};

// A number as the fixtures write it: those that JSON has no word for are strings.
double number_option(const json& value) {
  if (!value.is_string()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return value == "Infinity" ? infinity : -infinity;
}

std::vector<double> numbers(const json& values) {
  std::vector<double> all;
  for (const json& value : values) all.push_back(number_option(value));
  return all;
}

at::Tensor recorded_tensor(const json& values, const json& shape) {
  return torch::tensor(numbers(values), at::kDouble)
      .view(shape.get<std::vector<int64_t>>())
      .to(at::kFloat);
}

std::vector<double> flat_values(const at::Tensor& tensor) {
  const at::Tensor doubles = tensor.detach().to(at::kDouble).contiguous();
  return {doubles.data_ptr<double>(), doubles.data_ptr<double>() + doubles.numel()};
}

std::tuple<double, double> betas_of(const json& group) {
  return {group.at("betas").at(0).get<double>(), group.at("betas").at(1).get<double>()};
}

// One family of optimizers: options from what was recorded, the optimizer, what its state holds.
struct Family {
  std::function<std::unique_ptr<torch::optim::OptimizerOptions>(const json& group)> options;
  std::function<std::unique_ptr<torch::optim::Optimizer>(
      const std::vector<torch::optim::OptimizerParamGroup>&, const json& group)>
      optimizer;
  std::function<std::map<std::string, std::vector<double>>(torch::optim::OptimizerParamState&)>
      state;
};

void add(std::map<std::string, std::vector<double>>& state, const char* name,
         const at::Tensor& tensor) {
  if (tensor.defined()) state[name] = flat_values(tensor);
}

torch::optim::SGDOptions sgd_options(const json& group) {
  return torch::optim::SGDOptions(group.at("lr").get<double>())
      .momentum(group.at("momentum").get<double>())
      .dampening(group.at("dampening").get<double>())
      .weight_decay(group.at("weight_decay").get<double>())
      .nesterov(group.at("nesterov").get<bool>());
}

template <class Options>
Options adam_options(const json& group) {
  return Options(group.at("lr").get<double>())
      .betas(betas_of(group))
      .eps(group.at("eps").get<double>())
      .weight_decay(group.at("weight_decay").get<double>())
      .amsgrad(group.at("amsgrad").get<bool>());
}

torch::optim::AdagradOptions adagrad_options(const json& group) {
  return torch::optim::AdagradOptions(group.at("lr").get<double>())
      .lr_decay(group.at("lr_decay").get<double>())
      .eps(group.at("eps").get<double>())
      .weight_decay(group.at("weight_decay").get<double>())
      .initial_accumulator_value(group.at("initial_accumulator_value").get<double>());
}

torch::optim::RMSpropOptions rmsprop_options(const json& group) {
  return torch::optim::RMSpropOptions(group.at("lr").get<double>())
      .alpha(group.at("alpha").get<double>())
      .eps(group.at("eps").get<double>())
      .momentum(group.at("momentum").get<double>())
      .centered(group.at("centered").get<bool>())
      .weight_decay(group.at("weight_decay").get<double>());
}

template <class Optimizer, class Make, class ReadState>
Family family(Make make_options, ReadState read_state) {
  using Options = decltype(make_options(json()));
  return {.options = [=](const json& group) -> std::unique_ptr<torch::optim::OptimizerOptions> {
            return std::make_unique<Options>(make_options(group));
          },
          .optimizer = [=](const std::vector<torch::optim::OptimizerParamGroup>& groups,
                           const json& first) -> std::unique_ptr<torch::optim::Optimizer> {
            return std::make_unique<Optimizer>(groups, make_options(first));
          },
          .state = read_state};
}

template <class State>
auto adam_state() {
  return [](torch::optim::OptimizerParamState& any) {
    auto& state = dynamic_cast<State&>(any);
    std::map<std::string, std::vector<double>> values;
    values["step"] = {static_cast<double>(state.step())};
    add(values, "exp_avg", state.exp_avg());
    add(values, "exp_avg_sq", state.exp_avg_sq());
    add(values, "max_exp_avg_sq", state.max_exp_avg_sq());
    return values;
  };
}

const std::map<std::string, Family>& families() {
  using namespace torch::optim;
  using Values = std::map<std::string, std::vector<double>>;
  static const std::map<std::string, Family> table{
      {"SGD", family<SGD>(sgd_options,
                          [](OptimizerParamState& any) {
                            Values values;
                            add(values, "momentum_buffer",
                                dynamic_cast<SGDParamState&>(any).momentum_buffer());
                            return values;
                          })},
      {"Adam", family<Adam>(adam_options<AdamOptions>, adam_state<AdamParamState>())},
      {"AdamW", family<AdamW>(adam_options<AdamWOptions>, adam_state<AdamWParamState>())},
      {"Adagrad", family<Adagrad>(adagrad_options,
                                  [](OptimizerParamState& any) {
                                    auto& state = dynamic_cast<AdagradParamState&>(any);
                                    Values values;
                                    values["step"] = {static_cast<double>(state.step())};
                                    add(values, "sum", state.sum());
                                    return values;
                                  })},
      {"RMSprop", family<RMSprop>(rmsprop_options, [](OptimizerParamState& any) {
         auto& state = dynamic_cast<RMSpropParamState&>(any);
         Values values;
         values["step"] = {static_cast<double>(state.step())};
         add(values, "square_avg", state.square_avg());
         add(values, "momentum_buffer", state.momentum_buffer());
         add(values, "grad_avg", state.grad_avg());
         return values;
       })}};
  return table;
}

// torch::optim has no such option.
bool needs_maximize(const json& recorded) {
  for (const json& group : recorded.at("resolved_groups")) {
    if (group.at("maximize") == true) return true;
  }
  return false;
}

class UpdateRun {
 public:
  UpdateRun(const json& all, const json& recorded, CaseLog& log)
      : recorded_(recorded),
        sequence_(all.at("sequences").at(recorded.at("sequence"))),
        family_(families().at(recorded.at("optimizer"))),
        log_(log) {
    for (size_t i = 0; i < sequence_.at("params").size(); ++i) {
      parameters_.push_back(
          recorded_tensor(sequence_.at("params").at(i), sequence_.at("shapes").at(i))
              .requires_grad_());
    }
    const json& resolved = recorded_.at("resolved_groups");
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (size_t g = 0; g < resolved.size(); ++g) {
      groups.emplace_back(parameters_of_group(g), family_.options(options_of_group(g)));
    }
    optimizer_ = family_.optimizer(groups, options_of_group(0));
  }

  void run() {
    PreparedOptimizer prepared(optimizer_, std::make_shared<detail::PreparedModels>());
    for (size_t step = 0; step < sequence_.at("grads").size(); ++step) {
      if (recorded_.contains("lr_before_each_step")) {
        for (auto& group : prepared.param_groups()) {
          group.options().set_lr(recorded_.at("lr_before_each_step").at(step).get<double>());
        }
      }
      set_gradients(sequence_.at("grads").at(step));
      prepared.step();
      compare_parameters(step);
    }
    compare_state();
  }

 private:
  // The last rate is recorded where it changes, the first one is what the optimizer is made with.
  json options_of_group(size_t group) const {
    json options = recorded_.at("resolved_groups").at(group);
    if (recorded_.contains("lr_before_each_step")) options["lr"] = recorded_.at("args").at("lr");
    return options;
  }

  std::vector<at::Tensor> parameters_of_group(size_t group) const {
    if (!recorded_.contains("groups")) return parameters_;
    std::vector<at::Tensor> chosen;
    for (const json& index : recorded_.at("groups").at(group).at("params")) {
      chosen.push_back(parameters_.at(index.get<size_t>()));
    }
    return chosen;
  }

  void set_gradients(const json& gradients) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].mutable_grad() =
          gradients.at(i).is_null()
              ? at::Tensor()
              : recorded_tensor(gradients.at(i), sequence_.at("shapes").at(i));
    }
  }

  void compare_parameters(size_t step) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const std::string what =
          "parameter " + std::to_string(i) + " after step " + std::to_string(step + 1);
      const std::vector<double> own = flat_values(parameters_[i]);
      log_.expect_near(what, own, numbers(recorded_.at("params_after_each_step").at(step).at(i)),
                       kUpdates);
      if (!recorded_.contains("fused_params_after_each_step")) continue;
      log_.expect_near(what + ", fused", own,
                       numbers(recorded_.at("fused_params_after_each_step").at(step).at(i)),
                       kUpdates);
    }
  }

  void compare_state() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto found = optimizer_->state().find(parameters_[i].unsafeGetTensorImpl());
      std::map<std::string, std::vector<double>> own;
      if (found != optimizer_->state().end()) own = family_.state(*found->second);
      const json& expected = recorded_.at("state_after_last_step").at(i);
      log_.expect_equal("number of state entries of parameter " + std::to_string(i), own.size(),
                        expected.size());
      for (const auto& [name, values] : expected.items()) {
        log_.expect_near(
            name + " of parameter " + std::to_string(i), own[name],
            values.is_array() ? numbers(values) : std::vector<double>{number_option(values)},
            kUpdates);
      }
    }
  }

  const json& recorded_;
  const json& sequence_;
  const Family& family_;
  CaseLog& log_;
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
};

TEST(Fixtures, UpdatesOfPreparedOptimizers) {
  LOAD_FIXTURE_OR_SKIP(fixture, "optimizers.json");
  CaseLog log;
  int cases = 0;
  for (const json& recorded : fixture.at("cases")) {
    if (needs_maximize(recorded)) continue;
    ++cases;
    log.run(inputs_of(recorded), [&] { UpdateRun(fixture, recorded, log).run(); });
  }
  EXPECT_GT(cases, 0);
  log.report();
}

TEST(Fixtures, UpdatesThatTorchInCppHasNoOptionFor) {
  LOAD_FIXTURE_OR_SKIP(fixture, "optimizers.json");
  int cases = 0;
  for (const json& recorded : fixture.at("cases")) cases += needs_maximize(recorded) ? 1 : 0;
  if (cases > 0) GTEST_SKIP() << "maximize: " << cases << " cases";
}

}  // namespace
}  // namespace accelerate::test
