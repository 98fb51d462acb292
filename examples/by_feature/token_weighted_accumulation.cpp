// Texts have different lengths, so micro-batches hold different numbers of tokens. With the number
// of its tokens as the weight of each loss, the gradients are those of one big batch: the mean over
// all tokens, in all micro-batches and on all ranks.
#include "../command_line.h"
#include "toy.h"

constexpr int64_t kTexts = 72;
constexpr int64_t kLongest = 7;
constexpr int64_t kMicroBatch = 8;
constexpr int64_t kSteps = 4;
constexpr double kRate = 0.05;

// The mean over the tokens that are real.
torch::Tensor token_loss(const torch::Tensor& out, const torch::Tensor& y,
                         const torch::Tensor& real) {
  return torch::mse_loss(out.squeeze(2).masked_select(real), y.masked_select(real));
}

void train() {
  // "Tokens" are points on a line; text i has 1 to 7 of them, the rest of its row is padding.
  const auto x = toy::inputs(kTexts * kLongest).view({kTexts, kLongest});
  const auto y = toy::outputs(x);
  const auto lengths = 1 + torch::arange(kTexts) % kLongest;
  const auto real = torch::arange(kLongest).unsqueeze(0) < lengths.unsqueeze(1);

  accelerate::Accelerator accelerator(
      {.gradient_accumulation = {.steps = kSteps}, .data_loader = {.split_batches = true}});
  auto line = toy::flat_line();
  torch::optim::SGD sgd(line->parameters(), kRate);
  auto batches =
      accelerate::data_loader(accelerate::tensor_dataset(x, y, real), {.batch_size = kMicroBatch});
  auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader) {
      auto& [inputs, outputs, mask] = batch;
      auto window = accelerator.accumulate(model);
      const auto loss = token_loss(model(inputs.unsqueeze(2)), outputs, mask);
      accelerator.backward(loss, {.weight = mask.sum().item<double>()});
      optimizer.step();
      optimizer.zero_grad();
    }
  }

  // The same with plain libtorch and big batches; the last one is short.
  auto plain = toy::flat_line();
  torch::optim::SGD plain_sgd(plain->parameters(), kRate);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int64_t first = 0; first < kTexts; first += kMicroBatch * kSteps) {
      const auto rows = torch::indexing::Slice(first, first + kMicroBatch * kSteps);
      plain_sgd.zero_grad();
      token_loss(plain(x.index({rows}).unsqueeze(2)), y.index({rows}), real.index({rows}))
          .backward();
      plain_sgd.step();
    }
  }
  const auto learned = toy::parameters_of(model->parameters());
  const auto wanted = toy::parameters_of(plain->parameters());
  accelerator.print("y = ", learned[0].item<double>(), " x + ", learned[1].item<double>(),
                    ", difference to big batches ", (learned - wanted).abs().max().item<double>());
}

int main(int argc, char** argv) {
  const Words none(argc, argv, "",
                   "Losses weighted by their tokens: the gradients are those of one big batch.");
  return accelerate::run(train);
}
