// A generator and a discriminator of small pictures, two optimizers, gradients of two batches for
// each update, checkpoints.
//   usage: PROGRAM FOLDER [SEED [NUMBER OF THE CHECKPOINT TO GO ON FROM]]
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "data.h"

constexpr int64_t kNoiseSize = 8;
constexpr size_t kBatchSize = 16;
constexpr int64_t kBatchesPerUpdate = 2;
constexpr int64_t kEpochs = 2;
constexpr int64_t kCheckpointEvery = 5;

struct GeneratorImpl : torch::nn::Module {
  GeneratorImpl()
      : conv1(torch::nn::ConvTranspose2dOptions(kNoiseSize, 16, 4).bias(false)),
        norm1(16),
        conv2(torch::nn::ConvTranspose2dOptions(16, 1, 4).stride(2).padding(1).bias(false)) {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm1(conv1(x)));
    return torch::tanh(conv2(x));
  }

  torch::nn::ConvTranspose2d conv1;
  torch::nn::BatchNorm2d norm1;
  torch::nn::ConvTranspose2d conv2;
};
TORCH_MODULE(Generator);

torch::nn::Sequential make_discriminator() {
  return torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 4).stride(2).padding(1).bias(false)),
      torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 1, 4).bias(false)), torch::nn::Sigmoid());
}

// The numbers of a tensor, each after a blank.
std::string written(const torch::Tensor& numbers) {
  std::ostringstream text;
  text.precision(9);
  for (int64_t i = 0; i < numbers.size(0); ++i) text << ' ' << numbers[i].item<double>();
  return text.str();
}

void train(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  const uint64_t seed = argc > 2 ? std::stoul(argv[2]) : 1;
  const std::string restore = argc > 3 ? argv[3] : "";
  accelerate::Accelerator accelerator({.gradient_accumulation = {.steps = kBatchesPerUpdate}});
  torch::manual_seed(seed);
  torch::Device device = accelerator.device();

  Generator g;
  torch::nn::Sequential d = make_discriminator();

  auto batches = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      torch::data::datasets::TensorDataset(blobs(192))
          .map(torch::data::transforms::Stack<torch::data::TensorExample>()),
      torch::data::DataLoaderOptions().batch_size(kBatchSize));

  const auto adam = torch::optim::AdamOptions(2e-3).betas({0.5, 0.999});
  torch::optim::Adam g_adam(g->parameters(), adam);
  torch::optim::Adam d_adam(d->parameters(), adam);
  auto [generator, discriminator, generator_optimizer, discriminator_optimizer, loader] =
      accelerator.prepare(g, d, g_adam, d_adam, batches);

  int64_t checkpoint = 0;
  if (!restore.empty()) {
    accelerator.load_state(folder + "/" + restore);
    checkpoint = std::stoll(restore);
  }

  for (int64_t epoch = loader.epoch() + 1; epoch <= kEpochs; ++epoch) {
    for (auto& batch : loader) {
      auto window = accelerator.accumulate(generator, discriminator);
      const int64_t batch_index = batch.info().index + 1;
      auto real_images = batch.data.to(device);
      auto real_labels = torch::empty(real_images.size(0), device).uniform_(0.8, 1.0);
      auto noise = torch::randn({real_images.size(0), kNoiseSize, 1, 1}, device);
      auto fake_images = generator->forward(noise);

      // The discriminator learns from real and from fake images.
      auto real_output = discriminator->forward(real_images).flatten();
      auto fake_output = discriminator->forward(fake_images.detach()).flatten();
      auto d_loss = torch::binary_cross_entropy(real_output, real_labels) +
                    torch::binary_cross_entropy(fake_output, torch::zeros_like(fake_output));
      accelerator.backward(d_loss);

      // The generator learns to be taken for real; the discriminator learns nothing from that.
      auto output = discriminator->forward(fake_images).flatten();
      auto g_loss = torch::binary_cross_entropy(output, torch::ones_like(output));
      accelerator.backward(g_loss, {.only = generator});

      if (accelerator.sync_gradients()) {
        discriminator_optimizer.step();
        discriminator_optimizer.zero_grad();
        generator_optimizer.step();
        generator_optimizer.zero_grad();
      }

      auto shown = accelerator.gather(torch::stack({d_loss, g_loss, fake_output.mean()}).detach());
      accelerator.print("epoch ", epoch, " batch ", batch_index, written(shown));

      if (batch_index % kCheckpointEvery == 0) {
        const std::string number = std::to_string(++checkpoint);
        accelerator.save_state(folder + "/" + number);
      }
    }
  }
}

int main(int argc, char** argv) {
  return accelerate::run([&] { train(argc, argv); });
}
