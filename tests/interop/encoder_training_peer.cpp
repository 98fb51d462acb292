// The C++ side of encoder_training_interop.py.
//
//   encoder_training_peer CLASS FOLDER INPUTS SEED
//
// Trains the model of FOLDER, whose architecture is CLASS, for some steps of AdamW on INPUTS, a
// safetensors file with the inputs of forward() by name, and prints the loss of each step.
#include <accelerate/accelerate.h>
#include <accelerate/safetensors.h>
#include <accelerate/transformers/pretrained.h>
#include <accelerate/transformers/registry.h>
#include <torch/torch.h>

#include <cstdio>
#include <string>

namespace accelerate::test {
namespace {

constexpr int kSteps = 5;
constexpr double kLearningRate = 1e-3;

transformers::ModelTask task_of(const std::string& class_name) {
  for (const transformers::Architecture& each : transformers::registered_architectures()) {
    if (each.name == class_name) return each.task;
  }
  throw UsageError({.what = "no architecture is called " + class_name});
}

void train(const std::string& class_name, const std::string& folder, const std::string& inputs,
           uint64_t seed) {
  const SafetensorsFile file(inputs);
  const transformers::ModelInputs batch{.input_ids = file.tensor("input_ids"),
                                        .attention_mask = file.tensor("attention_mask"),
                                        .labels = file.tensor("labels")};
  const auto module = transformers::load_pretrained(task_of(class_name), folder);
  Accelerator accelerator({.cpu = true});
  torch::optim::AdamW torch_optimizer(module->parameters(),
                                      torch::optim::AdamWOptions(kLearningRate));
  auto [model, optimizer] = accelerator.prepare(module, torch_optimizer);
  model.train();
  torch::manual_seed(seed);
  for (int step = 0; step < kSteps; ++step) {
    const auto output = model(batch);
    accelerator.backward(output.loss);
    optimizer.step();
    optimizer.zero_grad();
    std::printf("%.9g\n", output.loss.item<double>());
  }
}

}  // namespace
}  // namespace accelerate::test

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    accelerate::test::train(argv[1], argv[2], argv[3], std::stoull(argv[4]));
  } catch (const accelerate::Error& error) {
    std::printf("%s\n", error.what());
    return 3;
  }
  return 0;
}
