// The recorded runs of a small network: what they are made of, and the same run again in plain
// libtorch.
#pragma once

#include <accelerate/autocast.h>
#include <torch/torch.h>

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "golden/recorded_arguments.h"

namespace accelerate::test {

struct Network : torch::nn::Module {
  Network(const nlohmann::json& sizes, std::string activation)
      : activation(std::move(activation)),
        fc1(register_module("fc1", torch::nn::Linear(sizes.at("din").get<int64_t>(),
                                                     sizes.at("hid").get<int64_t>()))),
        fc2(register_module("fc2", torch::nn::Linear(sizes.at("hid").get<int64_t>(),
                                                     sizes.at("dout").get<int64_t>()))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = fc1(x);
    if (activation == "relu") return fc2(torch::relu(hidden));
    if (activation == "gelu") return fc2(torch::gelu(hidden));
    if (activation == "silu") return fc2(torch::silu(hidden));
    if (activation == "sigmoid") return fc2(torch::sigmoid(hidden));
    if (activation == "tanh") return fc2(torch::tanh(hidden));
    throw std::runtime_error("no activation is known by the name of " + activation);
  }

  std::string activation;
  torch::nn::Linear fc1, fc2;
};

inline at::Tensor matrix(const nlohmann::json& rows) {
  std::vector<at::Tensor> tensors;
  for (const nlohmann::json& row : rows)
    tensors.push_back(torch::tensor(row.get<std::vector<double>>()));
  return torch::stack(tensors).to(at::kFloat);
}

inline std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor doubles = tensor.detach().to(at::kDouble).contiguous();
  return {doubles.data_ptr<double>(), doubles.data_ptr<double>() + doubles.numel()};
}

inline std::vector<int64_t> integers_of(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.data_ptr<int64_t>(), whole.data_ptr<int64_t>() + whole.numel()};
}

// The network of a case with its initial parameters.
inline std::shared_ptr<Network> make_network(const nlohmann::json& all,
                                             const nlohmann::json& recorded) {
  auto network = std::make_shared<Network>(all.at("model"), recorded.at("activation"));
  const torch::NoGradGuard no_grad;
  for (auto& item : network->named_parameters()) {
    const auto initial = all.at("initial").at(item.key()).get<std::vector<double>>();
    item.value().copy_(torch::tensor(initial, at::kDouble).view(item.value().sizes()));
  }
  return network;
}

// Inputs and targets of all samples.
struct RecordedData {
  explicit RecordedData(const nlohmann::json& all)
      : x(matrix(all.at("data").at("x"))),
        y(matrix(all.at("data").at("y"))),
        label(torch::tensor(all.at("data").at("class").get<std::vector<int64_t>>())) {}

  // Of the outputs for these samples.
  at::Tensor loss(const nlohmann::json& recorded, const at::Tensor& output,
                  const at::Tensor& samples) const {
    if (recorded.at("loss") == "mse") return torch::mse_loss(output, y.index_select(0, samples));
    if (recorded.at("loss") == "cross_entropy") {
      return torch::nn::functional::cross_entropy(output, label.index_select(0, samples));
    }
    throw std::runtime_error("no loss is known by the name of " + recorded.at("loss").dump());
  }

  at::Tensor x, y, label;
};

inline double norm_type_of(const nlohmann::json& clip) {
  if (!is_given(clip, "norm_type")) return 2;
  if (clip.at("norm_type") == "inf") return std::numeric_limits<double>::infinity();
  return recorded_number(clip.at("norm_type"));
}

// For each micro-step the number of micro-steps of its window.
std::vector<int64_t> window_lengths(const nlohmann::json& recorded);

// Runs the case in one process on the recorded samples of all ranks, at the recorded rates, and
// returns it with the numbers that come out. The losses of a window are divided by its own length,
// or by accumulation_steps.
nlohmann::json replay(const nlohmann::json& all, const nlohmann::json& recorded,
                      bool divide_by_own_length);

}  // namespace accelerate::test
