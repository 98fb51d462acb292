// Optimizers as torch.optim made them when they were recorded.
#pragma once

#include <torch/optim/optimizer.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace accelerate::test {

// Whether torch::optim has that class of torch.optim, other than as something that needs a closure.
bool has_recorded_optimizer(const std::string& type);

// The options of torch.optim.<type> by the names of its arguments; what is not recorded has torch's
// default. Throws UnknownArgument for a class or an argument that torch::optim does not have.
std::unique_ptr<torch::optim::OptimizerOptions> recorded_optimizer_options(
    const std::string& type, const nlohmann::json& arguments);

// The optimizer with these groups; `defaults` are the arguments of its constructor.
std::unique_ptr<torch::optim::Optimizer> recorded_optimizer(
    const std::string& type, const std::vector<torch::optim::OptimizerParamGroup>& groups,
    const nlohmann::json& defaults);
// The optimizer with one group: {"type": "SGD", "lr": 0.1, ...}.
std::unique_ptr<torch::optim::Optimizer> recorded_optimizer(
    const nlohmann::json& settings, const std::vector<at::Tensor>& parameters);

// What the class calls itself, from the entries of a parameter group in a state_dict().
std::string optimizer_of_group(const nlohmann::json& group);

// The state of a parameter under torch's names, flattened.
std::map<std::string, std::vector<double>> state_of_parameter(
    const std::string& type, torch::optim::OptimizerParamState& state);

// The momentum of each group, or beta1 where that is what schedules turn.
std::vector<double> momenta_of_groups(torch::optim::Optimizer& optimizer);

}  // namespace accelerate::test
