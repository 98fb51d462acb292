// Some steps of training of recorded models, through a prepared model and optimizer.
#include <accelerate/accelerate.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "golden/hf_models.h"
#include "golden/recorded_optimizers.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

// {"optimizer": "AdamW", "lr": 0.001, ..., "case": "padded", "loss_before_each_step": [...]}
std::unique_ptr<torch::optim::Optimizer> finetuning_optimizer(
    json settings, const std::vector<at::Tensor>& parameters) {
  settings["type"] = settings.at("optimizer");
  for (const char* other : {"optimizer", "case", "loss_before_each_step"}) settings.erase(other);
  return recorded_optimizer(settings, parameters);
}

void check_training(const RecordedModel& recorded, Differences& differences) {
  const json& settings = recorded.io.at("finetune");
  const auto module = recorded.load();
  Accelerator accelerator({.cpu = true});
  const auto torch_optimizer = finetuning_optimizer(settings, module->parameters());
  auto [model, optimizer] = accelerator.prepare(module, *torch_optimizer);
  const auto inputs =
      inputs_of_case(recorded, recorded.tensors(), settings.at("case").get<std::string>());
  int step = 0;
  ASSERT_FALSE(settings.at("loss_before_each_step").empty());
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
