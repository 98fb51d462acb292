// Fine-tunes a pretrained model to tell what a saying is about: the training loop of the tutorials
// of Python's transformers and accelerate, line by line.
//
//   accelerate launch --cpu --num_processes 2 transformers_sequence_classification
//   accelerate launch --mixed_precision bf16 transformers_sequence_classification   (on a GPU)
#include <accelerate/accelerate.h>
#include <accelerate/transformers.h>
#include <torch/torch.h>

#include "flags.h"
#include "pretrained_folder.h"
#include "sayings.h"

using namespace accelerate;                // NOLINT(google-build-using-namespace): an example
using namespace accelerate::transformers;  // NOLINT(google-build-using-namespace): an example

namespace {

const std::vector<std::string> kTopics{"computers", "definitions", "men-women",
                                       "politics",  "science",     "songs-poems"};

// Counts what was said against what is true.
class Metric {
 public:
  void add_batch(const at::Tensor& predictions, const at::Tensor& references) {
    const int64_t n = counts_.size(0);
    counts_ += (references.cpu() * n + predictions.cpu()).bincount({}, n * n).view({n, n});
  }
  double accuracy() const { return (counts_.trace() / counts_.sum()).item<double>(); }
  // The mean over the classes.
  double f1() const {
    return (2.0 * counts_.diagonal() / (counts_.sum(0) + counts_.sum(1)).clamp_min(1))
        .mean()
        .item<double>();
  }

 private:
  at::Tensor counts_ = torch::zeros(
      {static_cast<int64_t>(kTopics.size()), static_cast<int64_t>(kTopics.size())}, torch::kInt64);
};

std::vector<TextSample> tokenized(const PretrainedTokenizer& tokenizer,
                                  const std::vector<Saying>& sayings, int64_t max_length) {
  std::vector<TextPair> texts;
  for (const Saying& saying : sayings) texts.emplace_back(saying.text);
  auto encodings = tokenizer.encode_batch(texts, {.truncation = true, .max_length = max_length});
  std::vector<TextSample> samples;
  for (size_t i = 0; i < sayings.size(); ++i) {
    samples.emplace_back(std::move(encodings[i]), sayings[i].topic);
  }
  return samples;
}

template <class Model, class Loader>
Metric evaluate(const Accelerator& accelerator, const Model& model, const Loader& eval_dataloader) {
  Metric metric;
  model.eval();
  for (auto& batch : eval_dataloader) {
    torch::NoGradGuard no_grad;
    auto outputs = model(batch);
    auto predicted = outputs.logits.argmax(-1);
    auto [predictions, references] = accelerator.gather_for_metrics(predicted, batch.labels);
    metric.add_batch(predictions, references);
  }
  return metric;
}

int start(int argc, char** argv) {
  const Flags flags(argc, argv, "Fine-tunes a pretrained model to tell what a saying is about.",
                    {{"--model", {".deps/minilm", "folder, or name in the hub's cache"}},
                     {"--sayings", {"/usr/share/games/fortunes", "folder of fortune files"}},
                     {"--limit", {"400", "sayings of each topic; 0: all"}},
                     {"--max_length", {"48", "tokens of a saying"}},
                     {"--batch_size", {"16", "sayings of each process at once"}},
                     {"--epochs", {"2", "passes over the data"}},
                     {"--lr", {"1e-4", "learning rate"}},
                     {"--seed", {"1", "of the order and the new layer"}},
                     {"--output", {"sayings_model", "folder to save to"}}});
  const std::string checkpoint = flags.text("--model");
  const auto limit = static_cast<size_t>(flags.count("--limit", 0));
  const int64_t batch_size = flags.count("--batch_size", 1);
  const int64_t num_epochs = flags.count("--epochs", 1);
  need_model(checkpoint);
  Accelerator accelerator;
  torch::manual_seed(static_cast<uint64_t>(flags.integer("--seed")));

  auto tokenizer = AutoTokenizer::from_pretrained(checkpoint);
  auto [train_sayings, test_sayings] =
      split_sayings(read_sayings(flags.text("--sayings"), kTopics, limit),
                    static_cast<uint64_t>(flags.integer("--seed")));
  auto train_samples = tokenized(tokenizer, train_sayings, flags.count("--max_length", 1));
  auto test_samples = tokenized(tokenizer, test_sayings, flags.count("--max_length", 1));
  DataCollatorWithPadding data_collator(tokenizer);
  auto train_batches =
      data_loader(train_samples, {.batch_size = batch_size, .shuffle = true}, data_collator);
  auto eval_batches = data_loader(test_samples, {.batch_size = batch_size}, data_collator);

  auto pretrained =
      AutoModelForSequenceClassification::from_pretrained(checkpoint, {.labels = kTopics});
  torch::optim::AdamW adamw(pretrained->parameters(), flags.number("--lr"));

  auto [train_dataloader, eval_dataloader, model, optimizer] =
      accelerator.prepare(train_batches, eval_batches, pretrained, adamw);

  const int64_t num_training_steps = num_epochs * train_dataloader.size();
  auto lr_scheduler = get_scheduler("linear", optimizer.optimizer(),
                                    {.warmup_steps = 0, .training_steps = num_training_steps});

  const Metric before = evaluate(accelerator, model, eval_dataloader);
  accelerator.print("before: accuracy ", before.accuracy(), " F1 ", before.f1());

  ProgressBar progress_bar(num_training_steps, accelerator);
  model.train();
  for (int64_t epoch = 0; epoch < num_epochs; ++epoch) {
    for (auto& batch : train_dataloader) {
      auto outputs = model(batch);
      auto loss = outputs.loss;
      accelerator.backward(loss);
      optimizer.step();
      lr_scheduler.step();
      optimizer.zero_grad();
      progress_bar.update(1);
    }
  }
  progress_bar.close();

  const Metric after = evaluate(accelerator, model, eval_dataloader);
  accelerator.print("after: accuracy ", after.accuracy(), " F1 ", after.f1());

  accelerator.wait_for_everyone();
  auto unwrapped_model = accelerator.unwrap_model(model);
  save_pretrained(*unwrapped_model, flags.text("--output"),
                  {.is_main_process = accelerator.is_main_process(),
                   .save_function = [&](const auto& tensors, const auto& path) {
                     accelerator.save(tensors, path);
                   }});
  if (accelerator.is_main_process()) tokenizer.save_pretrained(flags.text("--output"));
  accelerator.wait_for_everyone();

  auto reloaded = accelerator.prepare(
      AutoModelForSequenceClassification::from_pretrained(flags.text("--output")));
  const Metric again = evaluate(accelerator, reloaded, eval_dataloader);
  accelerator.print("reloaded: accuracy ", again.accuracy(), " F1 ", again.f1());
  return again.accuracy() == after.accuracy() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return accelerate::run([&] { return start(argc, argv); });
}
