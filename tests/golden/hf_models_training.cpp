// Some steps of training of recorded models, through a prepared model and optimizer.
#include <accelerate/accelerate.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "golden/hf_models.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

torch::optim::AdamWOptions adamw_options(const json& settings) {
  EXPECT_EQ(settings.at("optimizer"), "AdamW");
  return torch::optim::AdamWOptions(settings.at("lr").get<double>())
      .betas({settings.at("betas").at(0).get<double>(), settings.at("betas").at(1).get<double>()})
      .eps(settings.at("eps").get<double>())
      .weight_decay(settings.at("weight_decay").get<double>());
}

void check_training(const RecordedModel& recorded, Differences& differences) {
  const json& settings = recorded.io.at("finetune");
  const auto module = recorded.load();
  Accelerator accelerator({.cpu = true});
  torch::optim::AdamW torch_optimizer(module->parameters(), adamw_options(settings));
  auto [model, optimizer] = accelerator.prepare(module, torch_optimizer);
  const auto inputs =
      inputs_of_case(recorded, recorded.tensors(), settings.at("case").get<std::string>());
  int step = 0;
  for (const json& loss : settings.at("loss_before_each_step")) {
    const auto output = model(inputs);
    differences.expect_near("loss before step " + std::to_string(++step),
                            output.loss.template item<double>(), loss.get<double>());
    accelerator.backward(output.loss);
    optimizer.step();
    optimizer.zero_grad();
  }
}

[[maybe_unused]] const int kTraining = register_model_tests(
    "HfModelsTraining", [](const RecordedModel& model) { return model.io.contains("finetune"); },
    check_training);

}  // namespace
}  // namespace accelerate::test
