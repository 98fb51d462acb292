#include "golden/recorded_states.h"

#include <torch/torch.h>

#include <regex>
#include <stdexcept>

#include "golden/recorded_arguments.h"
#include "golden/recorded_optimizers.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using TensorFunction = std::function<at::Tensor(const at::Tensor&)>;

const std::map<std::string, TensorFunction>& activations() {
  static const std::map<std::string, TensorFunction> table{
      {"Tanh", [](const at::Tensor& x) { return torch::tanh(x); }},
      {"ReLU", [](const at::Tensor& x) { return torch::relu(x); }},
      {"GELU", [](const at::Tensor& x) { return torch::gelu(x); }},
      {"SiLU", [](const at::Tensor& x) { return torch::silu(x); }},
      {"Sigmoid", [](const at::Tensor& x) { return torch::sigmoid(x); }},
      {"ELU", [](const at::Tensor& x) { return torch::elu(x); }},
      {"LeakyReLU", [](const at::Tensor& x) { return torch::leaky_relu(x); }},
      {"Softplus", [](const at::Tensor& x) { return torch::softplus(x); }},
      {"Identity", [](const at::Tensor& x) { return x; }}};
  return table;
}

// "Linear(4,8) - Tanh - Linear(8,3); ..." as {"Linear", "Tanh", "Linear"}.
std::vector<std::string> layer_names(const std::string& words) {
  const std::string layers = words.substr(0, words.find(';'));
  const std::regex layer(R"((\w+)(\([^)]*\))?)");
  std::vector<std::string> names;
  for (std::sregex_iterator found(layers.begin(), layers.end(), layer), end; found != end;
       ++found) {
    names.push_back((*found)[1]);
  }
  return names;
}

// The tensors of a layer; `bias` is undefined where it has none.
struct LayerTensors {
  at::Tensor weight{}, bias{};
};

TensorFunction layer_of(const std::string& name, const LayerTensors& tensors) {
  const auto [weight, bias] = tensors;
  if (name == "Linear") {
    return [weight = weight, bias = bias](const at::Tensor& x) {
      return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
    };
  }
  return [weight = weight, bias = bias](const at::Tensor& x) {
    return at::layer_norm(x, weight.sizes(), weight, bias);
  };
}

}  // namespace

ordered_json RecordedState::weights(size_t model) const {
  const std::string key = model == 0 ? "weights" : "weights_" + std::to_string(model);
  return ordered.contains(key) ? ordered.at(key) : ordered_json();
}

RecordedState recorded_state(const std::string& name) {
  const std::string file = "accelerate_state/" + name + "/expected.json";
  return {.name = name,
          .folder = fixtures_folder().path / "accelerate_state" / name,
          .expected = load_fixture(file),
          .ordered = load_fixture_in_order(file)};
}

std::vector<RecordedState> recorded_states(
    const std::function<bool(const json& expected)>& wanted) {
  std::vector<RecordedState> states;
  for (const auto& folder : fixture_folders("accelerate_state")) {
    RecordedState state = recorded_state(folder.filename().string());
    if (wanted(state.expected)) states.push_back(std::move(state));
  }
  if (states.empty()) {
    throw std::runtime_error("no folder of accelerate_state in " + fixtures_folder().path.string() +
                             " is of this kind");
  }
  return states;
}

at::Tensor recorded_tensor(const json& recorded) {
  return torch::tensor(recorded_numbers(recorded.at("values")), at::kDouble)
      .to(at::kFloat)
      .view(recorded.at("shape").get<std::vector<int64_t>>());
}

at::Tensor recorded_rows(const json& rows) {
  std::vector<double> all;
  for (const json& row : rows) {
    for (const json& value : row) all.push_back(recorded_number(value));
  }
  return torch::tensor(all, at::kDouble)
      .to(at::kFloat)
      .view({static_cast<int64_t>(rows.size()), -1});
}

void NamedTensorModule::put(const std::string& name, const at::Tensor& tensor, bool is_parameter) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) {
    if (is_parameter) {
      register_parameter(name, tensor);
    } else {
      register_buffer(name, tensor);
    }
    return;
  }
  auto& child = named_children_[name.substr(0, dot)];
  if (!child) {
    child = register_module(name.substr(0, dot), std::make_shared<NamedTensorModule>());
  }
  child->put(name.substr(dot + 1), tensor, is_parameter);
}

RecordedNetwork::RecordedNetwork(const ordered_json& weights, const std::string& words,
                                 bool is_blank) {
  std::vector<std::string> places;  // in the order of the layers
  std::map<std::string, LayerTensors> tensors;
  for (const auto& [name, recorded] : weights.items()) {
    at::Tensor tensor = recorded_tensor(json(recorded));
    if (is_blank) tensor = torch::zeros_like(tensor);
    put(name, tensor.requires_grad_());
    const size_t dot = name.rfind('.');
    const std::string place = dot == std::string::npos ? "" : name.substr(0, dot);
    if (!tensors.contains(place)) places.push_back(place);
    if (name.ends_with("weight")) tensors[place].weight = tensor;
    if (name.ends_with("bias")) tensors[place].bias = tensor;
  }
  if (words.empty()) return;
  size_t used = 0;
  for (const std::string& layer : layer_names(words)) {
    if (layer == "Linear" || layer == "LayerNorm") {
      if (used == places.size()) throw std::runtime_error("too few weights for " + words);
      layers_.push_back(layer_of(layer, tensors.at(places[used++])));
    } else if (activations().contains(layer)) {
      layers_.push_back(activations().at(layer));
    } else {
      throw std::runtime_error("no layer is known by the name of " + layer);
    }
  }
  if (used != places.size()) throw std::runtime_error("too many weights for " + words);
  std::smatch found;
  if (std::regex_search(words, found, std::regex(R"(loss\s*=\s*(\w+))"))) loss_ = found[1];
}

at::Tensor RecordedNetwork::forward(at::Tensor input) {
  if (layers_.empty()) throw std::runtime_error("the layers of this network are not recorded");
  for (const Layer& layer : layers_) input = layer(input);
  return input;
}

at::Tensor RecordedNetwork::loss(const at::Tensor& output, const at::Tensor& target) const {
  if (loss_ == "mse") return torch::mse_loss(output, target);
  if (loss_ == "l1") return torch::l1_loss(output, target);
  if (loss_ == "smooth_l1") return torch::smooth_l1_loss(output, target);
  throw std::runtime_error("no loss is known by the name of \"" + loss_ + "\"");
}

std::unique_ptr<torch::optim::Optimizer> optimizer_for_state(
    const json& state, const std::vector<at::Tensor>& parameters) {
  const json& recorded = state.at("param_groups");
  const std::string type = optimizer_of_group(recorded.at(0));
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const json& group : recorded) {
    std::vector<at::Tensor> of_group;
    for (const json& index : group.at("params")) of_group.push_back(parameters.at(index));
    const json options{{"lr", group.value("initial_lr", group.at("lr"))}};
    groups.emplace_back(of_group, recorded_optimizer_options(type, options));
  }
  return recorded_optimizer(type, groups, json::object());
}

at::Tensor draw_as_recorded(const std::string& call, std::optional<at::Generator> generator) {
  if (!call.starts_with("torch_")) return {};  // Python's and NumPy's own generators
  std::smatch found;
  if (!std::regex_match(call, found, std::regex(R"(torch_(rand|randn|randperm)(\d+))"))) {
    throw std::runtime_error("no test draws " + call);
  }
  const int64_t count = std::stoll(found[2]);
  if (found[1] == "rand") return torch::rand({count}, generator);
  if (found[1] == "randn") return torch::randn({count}, generator);
  return torch::randperm(count, generator, at::kLong);
}

int64_t steps_of_state(const json& state) {
  for (const auto& [index, entries] : state.at("state").items()) {
    if (!entries.contains("step")) continue;
    const json& step = entries.at("step");
    return static_cast<int64_t>(recorded_number(step.is_object() ? step.at("values").at(0) : step));
  }
  return 0;
}

}  // namespace accelerate::test
