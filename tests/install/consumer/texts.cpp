// A program that knows the installed Accelerate::transformers alone: makes a small model, saves it,
// loads it again and says whether both answer alike.
#include <accelerate/transformers.h>
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

using namespace accelerate::transformers;  // NOLINT(google-build-using-namespace): a user's program

int main() {
  const std::filesystem::path folder = "texts_model";
  auto model = AutoModelForCausalLM::from_config(ModelConfig::from_json(
      R"({"model_type": "gpt2", "vocab_size": 9, "n_embd": 8, "n_head": 2, "n_layer": 1})"));
  model->eval();
  save_pretrained(*model, folder);
  std::ofstream(folder / "tokenizer.json") << R"({"version": "1.0", "added_tokens": [],
      "pre_tokenizer": {"type": "WhitespaceSplit"},
      "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "one": 1, "two": 2}}})";

  const auto tokenizer = AutoTokenizer::from_pretrained(folder.string());
  const auto loaded = AutoModelForCausalLM::from_pretrained(folder.string());
  const ModelInputs inputs = tokenizer("one two three");
  const auto before = model->forward(inputs).logits;
  const auto after = loaded->forward(inputs).logits;
  std::printf("%zu tokens\n", static_cast<size_t>(inputs.input_ids.size(1)));
  return inputs.input_ids.size(1) == 3 && before.equal(after) ? 0 : 1;
}
