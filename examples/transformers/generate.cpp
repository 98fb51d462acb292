// Continues a text with any model that predicts the next token: a folder of GPT-2, Llama or T5, or
// a name of the Hugging Face hub that is in the local cache.
//
//   transformers_generate --model gpt2 --prompt "Once upon a time" --sample 1 --temperature 0.8
//
// The text appears word by word. Several processes share the prompts, which are separated by "|".
#include <accelerate/accelerate.h>
#include <accelerate/transformers.h>
#include <torch/torch.h>

#include <iostream>
#include <optional>

#include "flags.h"
#include "pretrained_folder.h"
#include "tiny_gpt2.h"

using namespace accelerate;                // NOLINT(google-build-using-namespace): an example
using namespace accelerate::transformers;  // NOLINT(google-build-using-namespace): an example

namespace {

// Prints a text as it grows. A character may come in several tokens: the last one waits until it is
// whole.
class Terminal {
 public:
  explicit Terminal(const PretrainedTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void show(std::span<const int64_t> ids) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    constexpr std::string_view kIncomplete = "\xEF\xBF\xBD";
    if (!text().ends_with(kIncomplete)) show_all();
  }
  void finish() {
    show_all();
    std::cout << '\n';
  }

 private:
  std::string text() const { return tokenizer_.decode(ids_, {.skip_special_tokens = true}); }
  void show_all() {
    const std::string all = text();
    std::cout << all.substr(std::min(shown_, all.size())) << std::flush;
    shown_ = all.size();
  }

  const PretrainedTokenizer& tokenizer_;
  std::vector<int64_t> ids_{};
  size_t shown_ = 0;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == '|') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::shared_ptr<PretrainedModel> load(const std::string& name, bool untrained, c10::Device device) {
  const ModelConfig config = ModelConfig::from_file(find_pretrained(name));
  if (untrained) {
    const bool is_seq2seq = config.flag("is_encoder_decoder", false);
    auto model = is_seq2seq ? AutoModelForSeq2SeqLM::from_config(config)
                            : AutoModelForCausalLM::from_config(config);
    model->to(device);
    model->eval();
    return model;
  }
  if (config.flag("is_encoder_decoder", false)) {
    return AutoModelForSeq2SeqLM::from_pretrained(name, {.device = device});
  }
  return AutoModelForCausalLM::from_pretrained(name, {.device = device});
}

int start(int argc, char** argv) {
  const Flags flags(
      argc, argv, "Continues a text, word by word; several prompts are separated by |.",
      {{"--model", {"gpt2", "folder, or name in the hub's cache"}},
       {"--untrained", {"0", "1: random values; a tiny GPT-2 if there is no --model"}},
       {"--prompt", {"Once upon a time", "what to continue"}},
       {"--max_new_tokens", {"40", "length of the continuation"}},
       {"--sample", {"0", "1: sample the tokens; 0: take the best one"}},
       {"--temperature", {"1", "of drawing"}},
       {"--top_k", {"50", "sample from this many tokens"}},
       {"--top_p", {"1", "sample from the tokens within this probability"}},
       {"--seed", {"1", "of what is random"}}});
  const int64_t max_new_tokens = flags.count("--max_new_tokens", 1);
  const bool untrained = flags.integer("--untrained") != 0;
  std::optional<TinyGpt2Folder> tiny;
  std::string checkpoint = flags.text("--model");
  if (untrained && !has_model(checkpoint)) checkpoint = tiny.emplace().path();
  need_model(checkpoint);
  Accelerator accelerator;
  torch::manual_seed(static_cast<uint64_t>(flags.integer("--seed")));
  auto tokenizer = AutoTokenizer::from_pretrained(checkpoint);
  if (!tokenizer.pad_token_id() && tokenizer.special_tokens().eos) {
    tokenizer.set_pad_token(*tokenizer.special_tokens().eos);
  }
  tokenizer.set_padding_side(TokenSide::kLeft);
  const auto model = load(checkpoint, untrained, accelerator.device());

  GenerationOptions options{
      .max_new_tokens = max_new_tokens,
      .do_sample = flags.integer("--sample") != 0,
      .pad_token_id = tokenizer.pad_token_id(),
      .seed = static_cast<uint64_t>(flags.integer("--seed") + accelerator.process_index())};
  if (*options.do_sample) {
    options.temperature = flags.number("--temperature");
    options.top_k = flags.integer("--top_k");
    options.top_p = flags.number("--top_p");
  }
  const std::vector<std::string> prompts = split(flags.text("--prompt"));
  if (prompts.size() == 1) {  // alone: as it comes
    Terminal terminal(tokenizer);
    const ModelInputs inputs = send_to_device(tokenizer(prompts), accelerator.device());
    if (accelerator.is_main_process()) {
      if (!model->is_encoder_decoder()) std::cout << prompts[0] << std::flush;
      options.on_tokens = [&](const at::Tensor& tokens) {
        terminal.show({tokens.data_ptr<int64_t>(), 1});
        return true;
      };
      generate(*model, inputs, options);
      terminal.finish();
    }
    return 0;
  }
  const std::vector<std::string> mine = accelerator.split_between_processes(prompts);
  std::vector<std::string> texts;
  if (!mine.empty()) {
    const at::Tensor ids =
        generate(*model, send_to_device(tokenizer(mine), accelerator.device()), options);
    texts = tokenizer.batch_decode(ids, {.skip_special_tokens = true});
  }
  for (const std::string& text : accelerator.gather_object(texts)) accelerator.print(text);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return accelerate::run([&] { return start(argc, argv); });
}
