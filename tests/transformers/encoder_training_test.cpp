// Fine-tuning of a small BERT as the tutorial does it: prepared model, AdamW, schedule and loader.
#include <accelerate/accelerate.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/ranks.h"
#include "transformers/encoder_models.h"

namespace accelerate::test {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

constexpr int64_t kTexts = 48;
constexpr int64_t kTotalBatch = 8;
constexpr int kEpochs = 2;
constexpr double kLearningRate = 5e-3;
// Float32 that is added up in another order, through twelve steps of AdamW.
constexpr double kSame = 2e-4;

AcceleratorOptions on_cpu(MixedPrecision precision = MixedPrecision::kNo) {
  return {.cpu = true,
          .mixed_precision = precision,
          .process_group = {.timeout = std::chrono::seconds(50),
                            .rendezvous_timeout = std::chrono::seconds(50)}};
}

// Texts of different lengths, the same on every rank; the class is whether word 5 is in it.
struct Texts {
  size_t size() const { return kTexts; }
  std::pair<at::Tensor, int64_t> get(size_t index) const {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(index) + 17);
    const int64_t length = at::randint(4, 12, {1}, generator).item<int64_t>();
    at::Tensor ids = at::randint(6, 40, {length}, generator, at::kLong);
    const int64_t label = static_cast<int64_t>(index) % 2;
    if (label == 1) ids[length / 2] = 5;
    return {ids, label};
  }
};

ModelInputs pad(const std::vector<std::pair<at::Tensor, int64_t>>& samples) {
  ModelInputs batch;
  batch.input_ids = at::zeros({static_cast<int64_t>(samples.size()), 12}, at::kLong);
  batch.labels = at::empty({batch.input_ids.size(0)}, at::kLong);
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    batch.input_ids[row].slice(0, 0, samples[i].first.size(0)).copy_(samples[i].first);
    batch.labels[row] = samples[i].second;
  }
  batch.attention_mask = batch.input_ids.ne(0).to(at::kLong);
  return batch;
}

std::shared_ptr<PretrainedModel> classifier() {
  ModelConfig config = small_bert();
  set_all_dropout(config, 0.0);
  return random_model(ModelTask::kSequenceClassification, config);
}

// The mean loss of all ranks in each step, then the parameters.
std::vector<double> fine_tune(int64_t batch_size) {
  Accelerator accelerator(on_cpu());
  const auto module = classifier();
  torch::optim::AdamW torch_optimizer(module->parameters(),
                                      torch::optim::AdamWOptions(kLearningRate).weight_decay(0.01));
  auto [model, optimizer, loader] = accelerator.prepare(
      module, torch_optimizer, data_loader(Texts(), {.batch_size = batch_size}, pad));
  // A prepared schedule counts a step for every rank.
  const int64_t ranks = accelerator.num_processes();
  const int64_t steps = kEpochs * static_cast<int64_t>(loader.size());
  auto scheduler = accelerator.prepare(get_scheduler(
      "linear", torch_optimizer, {.warmup_steps = 2 * ranks, .training_steps = steps * ranks}));
  std::vector<double> seen;
  model.train();
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (auto& batch : loader) {
      const auto output = model(batch);
      accelerator.backward(output.loss);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      seen.push_back(
          accelerator.reduce(output.loss.detach(), ReduceOp::kMean).template item<double>());
    }
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kEpochs * kTexts / kTotalBatch));
  EXPECT_LT(seen.back(), seen.front());
  for (const auto& item : module->named_parameters()) {
    // Nothing depends on the bias of keys: its gradient is rounding, which AdamW makes a step of.
    if (item.key().ends_with("key.bias")) continue;
    const at::Tensor values = item.value().detach().to(at::kDouble).contiguous();
    seen.insert(seen.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  return seen;
}

using EncoderTraining = Ranks;

TEST_F(EncoderTraining, TwoRanksEndWhereOneProcessWithTheWholeBatchDoes) {
  const auto alone = run_collect(1, [](const Rank&) { return fine_tune(kTotalBatch); });
  const auto ranks = run_collect(2, [](const Rank&) { return fine_tune(kTotalBatch / 2); });
  ASSERT_FALSE(alone.at(0).empty());
  EXPECT_EQ(ranks.at(0), ranks.at(1));
  EXPECT_THAT(ranks.at(0), Pointwise(DoubleNear(kSame), alone.at(0)));
}

TEST_F(EncoderTraining, RunsInBfloat16Autocast) {
  run(1, [](const Rank&) {
    const ModelInputs inputs = pad({Texts().get(0), Texts().get(1), Texts().get(2)});
    const double exact = classifier()->forward(inputs).loss.item<double>();
    Accelerator accelerator(on_cpu(MixedPrecision::kBf16));
    const auto module = classifier();
    torch::optim::AdamW torch_optimizer(module->parameters(),
                                        torch::optim::AdamWOptions(kLearningRate));
    auto [model, optimizer] = accelerator.prepare(module, torch_optimizer);
    double loss = exact;
    for (int step = 0; step < 5; ++step) {
      const auto output = model(inputs);
      EXPECT_EQ(output.logits.scalar_type(), at::kFloat);
      if (step == 0) {
        EXPECT_NEAR(output.loss.template item<double>(), exact, 0.05);
      }
      loss = output.loss.template item<double>();
      accelerator.backward(output.loss);
      optimizer.step();
      optimizer.zero_grad();
    }
    EXPECT_LT(loss, exact);
    for (const at::Tensor& parameter : module->parameters()) {
      EXPECT_EQ(parameter.scalar_type(), at::kFloat);
    }
  });
}

TEST_F(EncoderTraining, WhatABatchDoesNotHaveStaysAway) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto loader = accelerator.prepare(data_loader(Texts(), {.batch_size = 4}, pad));
    auto model = accelerator.prepare(classifier());
    model.eval();
    int64_t texts = 0;
    for (auto& batch : loader) {
      EXPECT_TRUE(batch.input_ids.defined());
      EXPECT_FALSE(batch.token_type_ids.defined() || batch.position_ids.defined() ||
                   batch.decoder_input_ids.defined());
      const at::NoGradGuard no_gradient;
      const auto output = model(batch);
      const auto [outputs, labels] = accelerator.gather_for_metrics(
          transformers::ModelOutput{.logits = output.logits}, batch.labels);
      EXPECT_EQ(outputs.logits.size(0), labels.size(0));
      EXPECT_FALSE(outputs.loss.defined() || outputs.pooler_output.defined());
      texts += labels.size(0);
      const ModelInputs gathered = accelerator.gather(batch);
      EXPECT_EQ(gathered.input_ids.size(0), 8);
      EXPECT_FALSE(gathered.token_type_ids.defined());
      const int64_t first = 4 * rank.rank;
      EXPECT_TRUE(slice_rows(gathered, first, first + 4).labels.equal(batch.labels));
    }
    EXPECT_EQ(texts, kTexts);
  });
}

}  // namespace
}  // namespace accelerate::test
