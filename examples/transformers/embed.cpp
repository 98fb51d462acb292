// Finds the sayings that mean nearly the same as a text: sentence embeddings of a pretrained model,
// the mean of its last hidden states, compared by the angle between them.
//
//   transformers_embed --query "Programs never do what they should."
//
// Several processes share the sayings.
#include <accelerate/accelerate.h>
#include <accelerate/transformers.h>
#include <torch/torch.h>

#include <functional>

#include "flags.h"
#include "pretrained_folder.h"
#include "sayings.h"

using namespace accelerate;                // NOLINT(google-build-using-namespace): an example
using namespace accelerate::transformers;  // NOLINT(google-build-using-namespace): an example

namespace {

const std::vector<std::string> kTopics{"art",  "computers", "education", "food",      "law",
                                       "love", "medicine",  "men-women", "news",      "pets",
                                       "work", "politics",  "science",   "platitudes"};

constexpr size_t kAtOnce = 64;

// [texts, width]; the length of each row is 1.
at::Tensor embed(
    PretrainedModel& model, const PretrainedTokenizer& tokenizer,
    const std::vector<std::string>& texts, c10::Device device,
    const std::function<void()>& after_batch = [] {}) {
  torch::NoGradGuard no_grad;
  // A process may have got no text at all.
  std::vector<at::Tensor> rows{torch::zeros({0, model.config().size("hidden_size")}, device)};
  for (size_t begin = 0; begin < texts.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, texts.size() - begin);
    const ModelInputs inputs = send_to_device(
        tokenizer(std::span(texts).subspan(begin, count), {.truncation = true, .max_length = 128}),
        device);
    const at::Tensor states = model.forward(inputs).last_hidden_state;
    const at::Tensor mask = inputs.attention_mask.unsqueeze(-1).to(states.scalar_type());
    const at::Tensor mean = (states * mask).sum(1) / mask.sum(1);
    rows.push_back(torch::nn::functional::normalize(mean));
    after_batch();
  }
  return torch::cat(rows);
}

int start(int argc, char** argv) {
  const Flags flags(argc, argv, "Finds the sayings that mean nearly the same as a text.",
                    {{"--model", {".deps/minilm", "folder, or name in the hub's cache"}},
                     {"--sayings", {"/usr/share/games/fortunes", "folder of fortune files"}},
                     {"--limit", {"200", "sayings of each topic; 0: all"}},
                     {"--query", {"Programs never do what they should.", "the text"}},
                     {"--nearest", {"5", "how many sayings to print"}},
                     {"--values", {"0", "print only this many numbers of the query"}}});
  const auto limit = static_cast<size_t>(flags.count("--limit", 0));
  const int64_t nearest = flags.count("--nearest", 1);
  need_model(flags.text("--model"));
  Accelerator accelerator;
  const auto tokenizer = AutoTokenizer::from_pretrained(flags.text("--model"));
  const auto model =
      AutoModel::from_pretrained(flags.text("--model"), {.device = accelerator.device()});
  const at::Tensor query = embed(*model, tokenizer, {flags.text("--query")}, accelerator.device());
  if (const int64_t values = flags.count("--values", 0); values > 0) {
    std::ostringstream line;
    line.precision(9);
    for (int64_t i = 0; i < values; ++i) line << query[0][i].item<float>() << ' ';
    accelerator.print(line.str());
    return 0;
  }

  std::vector<std::string> texts;
  for (const Saying& saying : read_sayings(flags.text("--sayings"), kTopics, limit)) {
    texts.push_back(saying.text);
  }
  const std::vector<std::string> mine = accelerator.split_between_processes(texts);
  ProgressBar progress_bar(static_cast<int64_t>((mine.size() + kAtOnce - 1) / kAtOnce), accelerator,
                           {.description = "sayings"});
  const at::Tensor rows =
      embed(*model, tokenizer, mine, accelerator.device(), [&] { progress_bar.update(1); });
  progress_bar.close();
  const at::Tensor all = torch::cat(accelerator.communicator().all_gather_ragged(rows));
  const auto [angles, places] = all.matmul(query[0]).topk(std::min(nearest, all.size(0)));
  accelerator.print(texts.size(), " sayings; nearest to: ", flags.text("--query"));
  for (int64_t i = 0; i < places.size(0); ++i) {
    accelerator.print(angles[i].item<float>(), "  ",
                      texts[static_cast<size_t>(places[i].item<int64_t>())]);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return accelerate::run([&] { return start(argc, argv); });
}
