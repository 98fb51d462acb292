// What transformer models cost: loading one, fine-tuning it, writing with one. Prints JSON for
// transformers_figures.py, which runs python_peer/transformers_speed.py beside it.
#include <accelerate/accelerate.h>
#include <accelerate/transformers.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "main.h"

namespace bench {
namespace {

using accelerate::transformers::AutoModel;
using accelerate::transformers::AutoModelForCausalLM;
using accelerate::transformers::AutoModelForSequenceClassification;
using accelerate::transformers::ModelInputs;

struct Settings {
  std::string folder{};
  int threads = 1;
  int steps = 20;
  int64_t batch = 16;
  int64_t positions = 64;
  int64_t new_tokens = 128;
};

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

// Numbers that the peer makes in the same way.
at::Tensor token_ids(int64_t rows, int64_t positions, int64_t vocabulary) {
  return (torch::arange(rows * positions) * 7919 + 13)
      .remainder(vocabulary)
      .view({rows, positions});
}

nlohmann::json load(const Settings& settings) {
  const auto model = AutoModel::from_pretrained(settings.folder);
  double sum = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    sum += parameter.detach().abs().sum(at::kDouble).item<double>();
  }
  return {{"sum", sum}, {"peak_megabytes", peak_megabytes()}};
}

nlohmann::json finetune(const Settings& settings) {
  accelerate::Accelerator accelerator({.cpu = true});
  auto pretrained = AutoModelForSequenceClassification::from_pretrained(settings.folder);
  const int64_t labels = pretrained->config().num_labels();
  const int64_t vocabulary = pretrained->config().size("vocab_size");
  ModelInputs batch{.input_ids = token_ids(settings.batch, settings.positions, vocabulary),
                    .attention_mask = torch::ones({settings.batch, settings.positions}, at::kLong),
                    .labels = torch::arange(settings.batch).remainder(labels)};
  torch::optim::AdamW adamw(pretrained->parameters(), torch::optim::AdamWOptions(1e-5));
  auto [model, optimizer] = accelerator.prepare(pretrained, adamw);
  nlohmann::json result{{"loss", model(batch).loss.item<double>()}};

  model.train();
  std::vector<double> times;
  for (int step = 0; step < settings.steps + 3; ++step) {
    const double start = now_ms();
    accelerator.backward(model(batch).loss);
    optimizer.step();
    optimizer.zero_grad();
    if (step >= 3) times.push_back(now_ms() - start);
  }
  result["step_ms"] = median(times);
  return result;
}

nlohmann::json generate(const Settings& settings) {
  const auto model = AutoModelForCausalLM::from_pretrained(settings.folder);
  const int64_t vocabulary = model->config().size("vocab_size");
  const ModelInputs prompt{.input_ids = token_ids(1, 16, vocabulary)};
  at::Tensor tokens;
  std::vector<double> times;
  for (int run = 0; run < settings.steps + 1; ++run) {
    const double start = now_ms();
    tokens = accelerate::transformers::generate(*model, prompt,
                                                {.max_new_tokens = settings.new_tokens,
                                                 .min_new_tokens = settings.new_tokens,
                                                 .do_sample = false});
    if (run >= 1) times.push_back(now_ms() - start);
  }
  const at::Tensor flat = tokens.flatten().contiguous();
  return {{"tokens",
           std::vector<int64_t>(flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel())},
          {"generate_ms", median(times)}};
}

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Times a transformer model");
  app.require_subcommand(1);
  app.add_option("--folder", settings.folder, "Of the model")->required();
  app.add_option("--threads", settings.threads, "Threads of torch");
  app.add_option("--steps", settings.steps, "How often");
  app.add_option("--batch", settings.batch, "Texts in a batch");
  app.add_option("--positions", settings.positions, "Tokens in a text");
  app.add_option("--new-tokens", settings.new_tokens, "To generate");
  const auto* loading = app.add_subcommand("load", "Loads it and ends")->fallthrough();
  const auto* tuning = app.add_subcommand("finetune", "Trains on one batch")->fallthrough();
  app.add_subcommand("generate", "Continues a text")->fallthrough();
  CLI11_PARSE(app, argc, argv);

  torch::set_num_threads(settings.threads);
  nlohmann::json result = *loading  ? load(settings)
                          : *tuning ? finetune(settings)
                                    : generate(settings);
  std::cout << result << std::endl;
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  return bench::run_main("bench_transformers", bench::main, argc, argv);
}
