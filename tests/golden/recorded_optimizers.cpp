#include "golden/recorded_optimizers.h"

#include <torch/torch.h>

#include <functional>
#include <stdexcept>

#include "golden/recorded_arguments.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using StateValues = std::map<std::string, std::vector<double>>;

// What is about how the update is computed, and what torch::optim does not have.
void pass_over_the_rest(RecordedArguments& arguments) {
  for (const char* key : {"foreach", "fused", "capturable", "differentiable", "initial_lr"}) {
    arguments.ignore(key);
  }
  arguments.ignore("params").only("maximize", false);
  arguments.done();
}

// Sets an option of torch::optim, which is a function by the name of the argument.
template <class Value>
auto put(auto set) {
  return [=](const json& value) {
    if constexpr (std::is_same_v<Value, double>) {
      set(recorded_number(value));
    } else {
      set(value.get<Value>());
    }
  };
}

torch::optim::SGDOptions sgd_options(const json& recorded) {
  torch::optim::SGDOptions options(1e-3);
  RecordedArguments arguments(recorded);
  arguments.with("lr", put<double>([&](double v) { options.lr(v); }))
      .with("momentum", put<double>([&](double v) { options.momentum(v); }))
      .with("dampening", put<double>([&](double v) { options.dampening(v); }))
      .with("weight_decay", put<double>([&](double v) { options.weight_decay(v); }))
      .with("nesterov", put<bool>([&](bool v) { options.nesterov(v); }));
  pass_over_the_rest(arguments);
  return options;
}

template <class Options>
Options adam_options(const json& recorded, bool is_decoupled) {
  Options options;
  RecordedArguments arguments(recorded);
  arguments.with("lr", put<double>([&](double v) { options.lr(v); }))
      .with("betas",
            [&](const json& v) {
              options.betas({recorded_number(v.at(0)), recorded_number(v.at(1))});
            })
      .with("eps", put<double>([&](double v) { options.eps(v); }))
      .with("weight_decay", put<double>([&](double v) { options.weight_decay(v); }))
      .with("amsgrad", put<bool>([&](bool v) { options.amsgrad(v); }))
      .only("decoupled_weight_decay", is_decoupled);
  pass_over_the_rest(arguments);
  return options;
}

torch::optim::AdagradOptions adagrad_options(const json& recorded) {
  torch::optim::AdagradOptions options;
  RecordedArguments arguments(recorded);
  arguments.with("lr", put<double>([&](double v) { options.lr(v); }))
      .with("lr_decay", put<double>([&](double v) { options.lr_decay(v); }))
      .with("eps", put<double>([&](double v) { options.eps(v); }))
      .with("weight_decay", put<double>([&](double v) { options.weight_decay(v); }))
      .with("initial_accumulator_value",
            put<double>([&](double v) { options.initial_accumulator_value(v); }));
  pass_over_the_rest(arguments);
  return options;
}

torch::optim::RMSpropOptions rmsprop_options(const json& recorded) {
  torch::optim::RMSpropOptions options;
  RecordedArguments arguments(recorded);
  arguments.with("lr", put<double>([&](double v) { options.lr(v); }))
      .with("alpha", put<double>([&](double v) { options.alpha(v); }))
      .with("eps", put<double>([&](double v) { options.eps(v); }))
      .with("momentum", put<double>([&](double v) { options.momentum(v); }))
      .with("centered", put<bool>([&](bool v) { options.centered(v); }))
      .with("weight_decay", put<double>([&](double v) { options.weight_decay(v); }));
  pass_over_the_rest(arguments);
  return options;
}

void add_state(StateValues& values, const char* name, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const at::Tensor doubles = tensor.detach().to(at::kDouble).contiguous();
  values[name] = {doubles.data_ptr<double>(), doubles.data_ptr<double>() + doubles.numel()};
}

template <class State>
StateValues adam_state(torch::optim::OptimizerParamState& any) {
  auto& state = dynamic_cast<State&>(any);
  StateValues values{{"step", {static_cast<double>(state.step())}}};
  add_state(values, "exp_avg", state.exp_avg());
  add_state(values, "exp_avg_sq", state.exp_avg_sq());
  add_state(values, "max_exp_avg_sq", state.max_exp_avg_sq());
  return values;
}

StateValues sgd_state(torch::optim::OptimizerParamState& any) {
  StateValues values;
  add_state(values, "momentum_buffer",
            dynamic_cast<torch::optim::SGDParamState&>(any).momentum_buffer());
  return values;
}

StateValues adagrad_state(torch::optim::OptimizerParamState& any) {
  auto& state = dynamic_cast<torch::optim::AdagradParamState&>(any);
  StateValues values{{"step", {static_cast<double>(state.step())}}};
  add_state(values, "sum", state.sum());
  return values;
}

StateValues rmsprop_state(torch::optim::OptimizerParamState& any) {
  auto& state = dynamic_cast<torch::optim::RMSpropParamState&>(any);
  StateValues values{{"step", {static_cast<double>(state.step())}}};
  add_state(values, "square_avg", state.square_avg());
  add_state(values, "momentum_buffer", state.momentum_buffer());
  add_state(values, "grad_avg", state.grad_avg());
  return values;
}

// One class of optimizers: options from what was recorded, the optimizer, what its state holds.
struct OptimizerFamily {
  std::function<std::unique_ptr<torch::optim::OptimizerOptions>(const json&)> options;
  std::function<std::unique_ptr<torch::optim::Optimizer>(
      const std::vector<torch::optim::OptimizerParamGroup>&, const json&)>
      optimizer;
  std::function<StateValues(torch::optim::OptimizerParamState&)> state;
};

template <class Optimizer, class MakeOptions>
OptimizerFamily family_of(MakeOptions make_options,
                          StateValues (*state)(torch::optim::OptimizerParamState&)) {
  using Options = decltype(make_options(json()));
  return {.options = [=](const json& recorded) -> std::unique_ptr<torch::optim::OptimizerOptions> {
            return std::make_unique<Options>(make_options(recorded));
          },
          .optimizer = [=](const std::vector<torch::optim::OptimizerParamGroup>& groups,
                           const json& defaults) -> std::unique_ptr<torch::optim::Optimizer> {
            return std::make_unique<Optimizer>(groups, make_options(defaults));
          },
          .state = state};
}

const std::map<std::string, OptimizerFamily>& optimizer_families() {
  using namespace torch::optim;
  static const std::map<std::string, OptimizerFamily> table{
      {"SGD", family_of<SGD>(sgd_options, sgd_state)},
      {"Adam", family_of<Adam>([](const json& a) { return adam_options<AdamOptions>(a, false); },
                               adam_state<AdamParamState>)},
      {"AdamW", family_of<AdamW>([](const json& a) { return adam_options<AdamWOptions>(a, true); },
                                 adam_state<AdamWParamState>)},
      {"Adagrad", family_of<Adagrad>(adagrad_options, adagrad_state)},
      {"RMSprop", family_of<RMSprop>(rmsprop_options, rmsprop_state)}};
  return table;
}

const OptimizerFamily& family_named(const std::string& type) {
  const auto found = optimizer_families().find(type);
  if (found == optimizer_families().end()) throw UnknownArgument("torch::optim has no " + type);
  return found->second;
}

}  // namespace

bool has_recorded_optimizer(const std::string& type) { return optimizer_families().contains(type); }

std::unique_ptr<torch::optim::OptimizerOptions> recorded_optimizer_options(const std::string& type,
                                                                           const json& arguments) {
  return family_named(type).options(arguments);
}

std::unique_ptr<torch::optim::Optimizer> recorded_optimizer(
    const std::string& type, const std::vector<torch::optim::OptimizerParamGroup>& groups,
    const json& defaults) {
  return family_named(type).optimizer(groups, defaults);
}

std::unique_ptr<torch::optim::Optimizer> recorded_optimizer(
    const json& settings, const std::vector<at::Tensor>& parameters) {
  json arguments = settings;
  arguments.erase("type");
  return recorded_optimizer(settings.at("type"), {torch::optim::OptimizerParamGroup(parameters)},
                            arguments);
}

std::string optimizer_of_group(const json& group) {
  if (group.contains("nesterov")) return "SGD";
  if (group.contains("lr_decay")) return "Adagrad";
  if (group.contains("centered")) return "RMSprop";
  if (group.contains("amsgrad")) {
    return group.value("decoupled_weight_decay", false) ? "AdamW" : "Adam";
  }
  throw UnknownArgument("torch::optim has no optimizer with a group of " + group.dump());
}

StateValues state_of_parameter(const std::string& type, torch::optim::OptimizerParamState& state) {
  return family_named(type).state(state);
}

std::vector<double> momenta_of_groups(torch::optim::Optimizer& optimizer) {
  std::vector<double> momenta;
  for (const auto& group : optimizer.param_groups()) {
    const torch::optim::OptimizerOptions& options = group.options();
    if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(&options)) {
      momenta.push_back(sgd->momentum());
    } else if (const auto* rmsprop = dynamic_cast<const torch::optim::RMSpropOptions*>(&options)) {
      momenta.push_back(rmsprop->momentum());
    } else if (const auto* adam = dynamic_cast<const torch::optim::AdamOptions*>(&options)) {
      momenta.push_back(std::get<0>(adam->betas()));
    } else {
      momenta.push_back(
          std::get<0>(dynamic_cast<const torch::optim::AdamWOptions&>(options).betas()));
    }
  }
  return momenta;
}

}  // namespace accelerate::test
