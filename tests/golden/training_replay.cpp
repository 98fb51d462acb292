#include "golden/training_replay.h"

#include "golden/recorded_optimizers.h"

namespace accelerate::test {

using nlohmann::json;

namespace {

void clip_gradients(const json& clip, const std::vector<at::Tensor>& parameters, json& step) {
  if (clip.at("type") == "value") {
    torch::nn::utils::clip_grad_value_(parameters, clip.at("max").get<double>());
    return;
  }
  if (clip.at("type") != "norm") throw std::runtime_error("no such clipping: " + clip.dump());
  step["grad_norm"] = torch::nn::utils::clip_grad_norm_(parameters, clip.at("max").get<double>(),
                                                        norm_type_of(clip));
}

}  // namespace

std::vector<int64_t> window_lengths(const json& recorded) {
  std::vector<int64_t> lengths;
  int64_t begun = 0;
  for (const json& step : recorded.at("micro_steps")) {
    ++begun;
    if (step.at("sync") == false) continue;
    lengths.insert(lengths.end(), static_cast<size_t>(begun), begun);
    begun = 0;
  }
  return lengths;
}

json replay(const json& all, const json& recorded, bool divide_by_own_length) {
  const RecordedData data(all);
  const PrecisionPolicy precision(recorded.at("mixed_precision").get<std::string>(), c10::kCPU);
  auto network = make_network(all, recorded);
  auto optimizer = recorded_optimizer(recorded.at("optimizer"), network->parameters());
  const auto output_of = [&](const at::Tensor& samples) {
    const auto autocast = precision.autocast();
    return precision.output(network->forward(data.x.index_select(0, samples)));
  };
  json result = recorded;
  const auto parameters = network->named_parameters();
  const auto lengths = window_lengths(recorded);
  size_t updates = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    json& step = result.at("micro_steps").at(i);
    const json& samples_of = step.at("indices_per_rank");
    const double divisor = static_cast<double>(
        divide_by_own_length ? lengths[i] : recorded.at("accumulation_steps").get<int64_t>());
    const double ranks = static_cast<double>(samples_of.size());
    double sum = 0;
    for (size_t rank = 0; rank < samples_of.size(); ++rank) {
      const at::Tensor samples = torch::tensor(samples_of.at(rank).get<std::vector<int64_t>>());
      const at::Tensor loss = data.loss(recorded, output_of(samples), samples);
      (loss / (divisor * ranks)).backward();
      step.at("loss_per_rank").at(rank) = loss.item<double>();
      sum += loss.item<double>();
    }
    step["reduced_mean_loss"] = sum / ranks;
    if (step.at("sync") == false) continue;
    if (!recorded.at("clip").is_null()) {
      clip_gradients(recorded.at("clip"), network->parameters(), step);
    }
    optimizer->param_groups().at(0).options().set_lr(step.at("lr_used"));
    optimizer->step();
    optimizer->zero_grad();
    json after = json::array();
    for (const json& name : recorded.at("parameter_names")) {
      after.push_back(values_of(parameters[name.get<std::string>()]));
    }
    result.at("params_after_each_update").at(updates++) = after;
  }
  for (const auto& item : parameters) {
    result.at("final_params").at(item.key()) = values_of(item.value());
  }
  const torch::NoGradGuard no_grad;
  for (json& entry : result.at("eval")) {
    const at::Tensor samples =
        torch::tensor(entry.at("gather_for_metrics_indices").get<std::vector<int64_t>>());
    const at::Tensor outputs = output_of(samples);
    json rows = json::array();
    for (int64_t row = 0; row < outputs.size(0); ++row) rows.push_back(values_of(outputs[row]));
    entry.at("gather_for_metrics_outputs") = rows;
  }
  return result;
}

}  // namespace accelerate::test
