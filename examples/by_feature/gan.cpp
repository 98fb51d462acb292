// A generator and a discriminator, trained in windows of four micro-batches. The generator's loss
// runs through the discriminator and would leave gradients there, among those that the
// discriminator has collected in this window: {.only = generator} keeps them out. The numbers are
// those of big batches.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include "../command_line.h"

constexpr int64_t kPoints = 128;
constexpr int64_t kMicroBatch = 8;
constexpr int64_t kSteps = 4;
constexpr int kEpochs = 50;

struct Pair {
  torch::nn::Linear generator{1, 1};
  torch::nn::Sequential discriminator{torch::nn::Linear(1, 16), torch::nn::Tanh(),
                                      torch::nn::Linear(16, 1)};
};

// The same on every rank and at every call.
Pair fresh_pair() {
  torch::manual_seed(1);
  return {};
}

// Points around 3, and noise. It comes with the data so that runs can be compared: other programs
// draw it in the loop.
accelerate::TensorDataset points_and_noise() {
  torch::manual_seed(2);
  return {3 + 0.5 * torch::randn({kPoints, 1}), torch::randn({kPoints, 1})};
}

torch::Tensor is_real(const torch::Tensor& score) { return (score - 1).square().mean(); }
torch::Tensor is_fake(const torch::Tensor& score) { return score.square().mean(); }

torch::optim::SGD optimizer_of(const std::vector<torch::Tensor>& parameters) {
  return torch::optim::SGD(parameters, 0.05);
}

torch::Tensor flat(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> all;
  for (const auto& parameter : parameters) all.push_back(parameter.detach().flatten().cpu());
  return torch::cat(all);
}

// The same training with plain libtorch and big batches, in the usual manner: what the generator's
// loss leaves in the discriminator is thrown away before the next one.
torch::Tensor train_on_big_batches() {
  auto [generator, discriminator] = fresh_pair();
  auto generator_sgd = optimizer_of(generator->parameters());
  auto discriminator_sgd = optimizer_of(discriminator->parameters());
  const auto data = points_and_noise();
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (int64_t first = 0; first < kPoints; first += kMicroBatch * kSteps) {
      const auto rows = [&](int column) {
        std::vector<torch::Tensor> part;
        for (int64_t i = first; i < first + kMicroBatch * kSteps; ++i) {
          const auto sample = data.get(static_cast<size_t>(i));
          part.push_back(column == 0 ? sample.data : sample.target);
        }
        return torch::stack(part);
      };
      const auto fake = generator(rows(1));
      const auto verdict = is_real(discriminator->forward(fake));
      generator->zero_grad();
      verdict.backward();
      discriminator->zero_grad();
      (is_real(discriminator->forward(rows(0))) + is_fake(discriminator->forward(fake.detach())))
          .backward();
      generator_sgd.step();
      discriminator_sgd.step();
    }
  }
  return flat(generator->parameters());
}

void train() {
  accelerate::Accelerator accelerator(
      {.gradient_accumulation = {.steps = kSteps}, .data_loader = {.split_batches = true}});
  Pair pair = fresh_pair();
  auto generator_sgd = optimizer_of(pair.generator->parameters());
  auto discriminator_sgd = optimizer_of(pair.discriminator->parameters());
  auto batches = accelerate::data_loader(points_and_noise(), {.batch_size = kMicroBatch});
  auto [generator, discriminator, generator_optimizer, discriminator_optimizer, loader] =
      accelerator.prepare(pair.generator, pair.discriminator, generator_sgd, discriminator_sgd,
                          batches);

  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (auto& batch : loader) {
      auto window = accelerator.accumulate(generator, discriminator);
      const auto fake = generator(batch.target);

      discriminator->zero_grad();  // leaves the earlier micro-batches of the window alone
      accelerator.backward(is_real(discriminator(batch.data)) +
                           is_fake(discriminator(fake.detach())));

      generator->zero_grad();
      accelerator.backward(is_real(discriminator(fake)), {.only = generator});

      discriminator_optimizer.step();  // only where the window ends
      generator_optimizer.step();
    }
  }
  const auto learned = flat(generator->parameters());
  const double difference = (learned - train_on_big_batches()).abs().max().item<double>();
  accelerator.print(generator_optimizer.step_count(), " updates, mean of fakes ",
                    learned[1].item<double>(), ", difference to big batches ", difference);
}

int main(int argc, char** argv) {
  const Words none(argc, argv, "", "A GAN, trained in windows of four micro-batches.");
  return accelerate::run(train);
}
