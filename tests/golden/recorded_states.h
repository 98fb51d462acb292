// Folders that Accelerate's save_state wrote, and the objects they were written from. Everything is
// read from what was recorded: any network of layers in a row, any optimizer that torch::optim has.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace accelerate::test {

// One folder of accelerate_state with its expected.json.
struct RecordedState {
  std::string name{};
  std::filesystem::path folder{};
  nlohmann::json expected{};
  nlohmann::ordered_json ordered{};  // the same

  // The weights of model `model`, null if there are not as many.
  nlohmann::ordered_json weights(size_t model = 0) const;
};

RecordedState recorded_state(const std::string& name);
// Those for which `wanted` is true, by name. Throws std::runtime_error if there is none, or if a
// folder has no expected.json.
std::vector<RecordedState> recorded_states(
    const std::function<bool(const nlohmann::json& expected)>& wanted);

// {"shape": [...], "values": [...]}, as float32.
at::Tensor recorded_tensor(const nlohmann::json& recorded);
// Rows of numbers as float32.
at::Tensor recorded_rows(const nlohmann::json& rows);

// Tensors under any names, in the order in which they are put.
class NamedTensorModule : public torch::nn::Module {
 public:
  void put(const std::string& name, const at::Tensor& tensor, bool is_parameter = true);

 private:
  std::map<std::string, std::shared_ptr<NamedTensorModule>> named_children_{};
};

// A network with the recorded weights. `words` tell its layers, "Linear(4,8) - Tanh - Linear(8,3);
// ... loss = mse": each Linear or LayerNorm takes the next weights. Without words it only holds
// them. The parameters are zeros if `is_blank`.
class RecordedNetwork : public NamedTensorModule {
 public:
  RecordedNetwork(const nlohmann::ordered_json& weights, const std::string& words,
                  bool is_blank = false);

  at::Tensor forward(at::Tensor input);
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target) const;

 private:
  using Layer = std::function<at::Tensor(const at::Tensor&)>;
  std::vector<Layer> layers_{};
  std::string loss_{};
};

// An optimizer with the class and the groups of a recorded state_dict(); of the options only the
// initial rates are as recorded, the others are torch's defaults.
std::unique_ptr<torch::optim::Optimizer> optimizer_for_state(
    const nlohmann::json& state, const std::vector<at::Tensor>& parameters);

// The next numbers of a generator of torch: "torch_rand5", "torch_randn3", "torch_randperm10".
// Undefined for other generators' numbers. Throws std::runtime_error for an unknown call of torch.
at::Tensor draw_as_recorded(const std::string& call, std::optional<at::Generator> generator = {});

// How many updates a recorded state_dict() has seen, 0 for optimizers that do not count.
int64_t steps_of_state(const nlohmann::json& state);

}  // namespace accelerate::test
