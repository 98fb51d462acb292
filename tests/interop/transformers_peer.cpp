// The C++ side of transformers_interop.py: checkpoints of transformer models.
//
//   transformers_peer answer CLASS FOLDER INPUTS OUT    the model of FOLDER, its logits in OUT
//   transformers_peer resave CLASS FOLDER TARGET SIZE   loaded and saved again, in shards of SIZE
//   transformers_peer resize CLASS FOLDER TARGET COUNT MULTIPLE   with rows for more tokens
//   transformers_peer create CLASS CONFIG TARGET        a new model of a config.json, saved
//
// CLASS is the name of an architecture. INPUTS and OUT are safetensors files: the inputs of
// forward() by name, and "logits" or "last_hidden_state". Prints the message of an error of the
// library and exits with 3.
#include <accelerate/errors.h>
#include <accelerate/safetensors.h>
#include <accelerate/transformers/pretrained.h>
#include <accelerate/transformers/registry.h>
#include <torch/torch.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

namespace accelerate::test {
namespace {

using transformers::ModelConfig;
using transformers::ModelInputs;
using transformers::ModelTask;

constexpr int kUsage = 2;
constexpr int kRefused = 3;

ModelTask task_of(const std::string& class_name) {
  for (const transformers::Architecture& each : transformers::registered_architectures()) {
    if (each.name == class_name) return each.task;
  }
  throw UsageError({.what = "no architecture is called " + class_name});
}

ModelInputs read_inputs(const std::string& path) {
  const SafetensorsFile file(path);
  const auto tensor = [&](const char* name) {
    return file.contains(name) ? file.tensor(name).clone() : at::Tensor();
  };
  return {.input_ids = tensor("input_ids"),
          .attention_mask = tensor("attention_mask"),
          .decoder_input_ids = tensor("decoder_input_ids")};
}

void answer(const std::string& class_name, const std::string& folder, const std::string& inputs,
            const std::string& out) {
  const at::NoGradGuard no_gradient;
  const auto model = transformers::load_pretrained(task_of(class_name), folder);
  const transformers::ModelOutput output = model->forward(read_inputs(inputs));
  NamedTensors tensors;
  if (output.logits.defined()) tensors.insert("logits", output.logits.contiguous());
  if (output.last_hidden_state.defined()) {
    tensors.insert("last_hidden_state", output.last_hidden_state.contiguous());
  }
  save_safetensors(out, tensors);
}

int run(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "answer" && argc == 6) {
    answer(argv[2], argv[3], argv[4], argv[5]);
  } else if (command == "resave" && argc == 6) {
    const auto model = transformers::load_pretrained(task_of(argv[2]), argv[3]);
    transformers::save_pretrained(*model, argv[4], {.max_shard_size = argv[5]});
  } else if (command == "resize" && argc == 7) {
    const auto model = transformers::load_pretrained(task_of(argv[2]), argv[3]);
    model->resize_token_embeddings(std::stoll(argv[5]),
                                   {.pad_to_multiple_of = std::stoll(argv[6])});
    transformers::save_pretrained(*model, argv[4]);
  } else if (command == "create" && argc == 5) {
    torch::manual_seed(4);
    const auto model = transformers::make_model(task_of(argv[2]), ModelConfig::from_file(argv[3]));
    transformers::save_pretrained(*model, argv[4]);
  } else {
    return kUsage;
  }
  return 0;
}

}  // namespace
}  // namespace accelerate::test

int main(int argc, char** argv) {
  try {
    return accelerate::test::run(argc, argv);
  } catch (const accelerate::Error& error) {
    std::printf("%s\n", error.what());
    return accelerate::test::kRefused;
  }
}
