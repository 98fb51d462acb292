// The transformer models of this library, whose fused operations read memory by themselves.
#include "multiproc/zero/zero_training.h"
#include "transformers/small_models.h"

namespace accelerate::test {
namespace {

struct ZeroTransformers : Ranks {};

std::shared_ptr<PretrainedModel> without_dropout(const std::string& type) {
  const bool is_encoder = type == "bert";
  const auto task = is_encoder     ? ModelTask::kSequenceClassification
                    : type == "t5" ? ModelTask::kSeq2SeqLm
                                   : ModelTask::kCausalLm;
  auto model = random_model(task, small_model(type));
  for (const auto& child : model->modules()) {
    if (auto* dropout = child->as<torch::nn::DropoutImpl>()) dropout->options.p(0);
  }
  return model;
}

struct TransformerRun {
  std::vector<double> losses, parameters;
};

TransformerRun train_transformer(const std::string& type, AcceleratorOptions options, int rank,
                                 bool loss_only) {
  Accelerator accelerator(std::move(options));
  auto net = without_dropout(type);
  net->to(test_device());
  net->eval();  // whatever else is random
  auto [model, optimizer] = accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.01));
  TransformerRun run;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor texts = random_texts(4, 9, 20 + static_cast<uint64_t>(step)).to(test_device());
    ModelInputs inputs{.input_ids = rows_of(texts, rank, 2)};
    inputs.labels = type == "bert" ? inputs.input_ids.select(1, 0) % 2 : inputs.input_ids;
    const at::Tensor loss =
        model(inputs, transformers::ForwardOptions{.loss_only = loss_only}).loss;
    accelerator.backward(loss);
    accelerator.clip_grad_value_(net->parameters(), 0.05);
    optimizer.step();
    optimizer.zero_grad();
    run.losses.push_back(loss.item<double>());
  }
  run.parameters = values_of(distinct(net->parameters()));
  return run;
}

TEST_F(ZeroTransformers, AreTrainedAsByDdp) {
  run(2, [](const Rank& rank) {
    // Sums in any order would differ between trainings, and AdamW makes much of what is near zero.
    if (tests_on_gpu()) at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    for (const std::string type : {"gpt2", "llama", "t5", "bert"}) {
      for (const bool loss_only : {false, true}) {
        if (loss_only && (type == "bert" || type == "t5")) continue;
        const TransformerRun usual =
            train_transformer(type, on_cpu(with_unused()), rank.rank, loss_only);
        for (const int stage : zero_stages()) {
          const TransformerRun own =
              train_transformer(type, zero(stage, with_unused()), rank.rank, loss_only);
          EXPECT_TRUE(near(own.losses, usual.losses, 1e-6)) << type << ", stage " << stage;
          EXPECT_TRUE(near(own.parameters, usual.parameters, 1e-5)) << type << ", stage " << stage;
        }
      }
    }
  });
}

}  // namespace
}  // namespace accelerate::test
