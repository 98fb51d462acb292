// A small transformer that learns to write letter by letter, with dropout, in batches that are
// drawn from a text at random.
//   usage: PROGRAM FOLDER [SEED [ITERATION TO GO ON FROM]]
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "data.h"

constexpr int64_t kBlock = 24;
constexpr int64_t kBatchSize = 8;
constexpr int64_t kWidth = 32;
constexpr int64_t kHeads = 2;
constexpr int64_t kLayers = 2;
constexpr double kDropout = 0.1;
constexpr int64_t kIterations = 60;
constexpr int64_t kWarmup = 10;
constexpr int64_t kEvaluateEvery = 20;
constexpr double kRate = 5e-3;

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : norm1(torch::nn::LayerNormOptions({kWidth})),
        attention(kWidth, 3 * kWidth),
        projection(kWidth, kWidth),
        norm2(torch::nn::LayerNormOptions({kWidth})),
        up(kWidth, 4 * kWidth),
        down(4 * kWidth, kWidth),
        dropout(kDropout) {
    register_module("norm1", norm1);
    register_module("attention", attention);
    register_module("projection", projection);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
    register_module("dropout", dropout);
  }

  torch::Tensor forward(torch::Tensor x) {
    const auto heads = attention(norm1(x))
                           .view({x.size(0), x.size(1), 3, kHeads, kWidth / kHeads})
                           .permute({2, 0, 3, 1, 4});
    auto y = torch::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.0, true);
    x = x + dropout(projection(y.transpose(1, 2).reshape_as(x)));
    return x + dropout(down(torch::gelu(up(norm2(x)))));
  }

  torch::nn::LayerNorm norm1;
  torch::nn::Linear attention;
  torch::nn::Linear projection;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear up;
  torch::nn::Linear down;
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Block);

struct CharModelImpl : torch::nn::Module {
  explicit CharModelImpl(int64_t letters)
      : tokens(letters, kWidth),
        positions(kBlock, kWidth),
        norm(torch::nn::LayerNormOptions({kWidth})),
        head(kWidth, letters) {
    register_module("tokens", tokens);
    register_module("positions", positions);
    for (int64_t i = 0; i < kLayers; ++i) blocks->push_back(Block());
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor x) {
    auto y = tokens(x) + positions(torch::arange(x.size(1), x.device()));
    return head(norm(blocks->forward(y)));
  }

  torch::nn::Embedding tokens;
  torch::nn::Embedding positions;
  torch::nn::Sequential blocks;
  torch::nn::LayerNorm norm;
  torch::nn::Linear head;
};
TORCH_MODULE(CharModel);

struct Letters {
  explicit Letters(std::string_view text) : alphabet(text) {
    std::sort(alphabet.begin(), alphabet.end());
    alphabet.erase(std::unique(alphabet.begin(), alphabet.end()), alphabet.end());
    std::vector<int64_t> numbers;
    for (const char c : text) numbers.push_back(static_cast<int64_t>(alphabet.find(c)));
    ids = torch::tensor(numbers);
  }
  // Pieces of the text, and the same one letter later.
  std::pair<torch::Tensor, torch::Tensor> draw_batch(torch::Device device) const {
    const auto places = torch::randint(ids.size(0) - kBlock, {kBatchSize});
    std::vector<torch::Tensor> inputs, targets;
    for (int64_t i = 0; i < kBatchSize; ++i) {
      const auto at = places[i].item<int64_t>();
      inputs.push_back(ids.slice(0, at, at + kBlock));
      targets.push_back(ids.slice(0, at + 1, at + kBlock + 1));
    }
    return {torch::stack(inputs).to(device), torch::stack(targets).to(device)};
  }

  std::string alphabet;
  torch::Tensor ids;
};

torch::Tensor loss_of(CharModel& model, const Letters& letters, torch::Device device) {
  const auto [inputs, targets] = letters.draw_batch(device);
  const auto scores = model->forward(inputs);
  return torch::nn::functional::cross_entropy(scores.flatten(0, 1), targets.flatten());
}

torch::Tensor estimate_loss(CharModel& model, const Letters& letters, torch::Device device) {
  torch::NoGradGuard no_grad;
  model->eval();
  auto total = torch::zeros({1}, device);
  for (int i = 0; i < 4; ++i) total += loss_of(model, letters, device) / 4;
  model->train();
  return total;
}

double rate_at(int64_t iteration) {
  if (iteration <= kWarmup) return kRate * iteration / kWarmup;
  const double done = static_cast<double>(iteration - kWarmup) / (kIterations - kWarmup);
  return kRate * 0.5 * (1 + std::cos(done * M_PI));
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
  const int64_t restore = argc > 3 ? std::stol(argv[3]) : 0;
  torch::manual_seed(seed);
  torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);

  const Letters letters(kText);
  CharModel model(static_cast<int64_t>(letters.alphabet.size()));
  model->to(device);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(kRate));

  if (restore > 0) {
    torch::load(model, folder + "/model-" + std::to_string(restore) + ".pt");
    torch::load(optimizer, folder + "/optimizer-" + std::to_string(restore) + ".pt");
  }

  for (int64_t iteration = restore + 1; iteration <= kIterations; ++iteration) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(rate_at(iteration));
    auto loss = loss_of(model, letters, device);
    optimizer.zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();

    auto shown = loss.detach().view(1);
    if (iteration % 5 == 1) {
      std::cout << "iteration " << iteration << " loss" << written(shown) << std::endl;
    }
    if (iteration % kEvaluateEvery == 0) {
      auto estimate = estimate_loss(model, letters, device);
      std::cout << "iteration " << iteration << " estimate" << written(estimate) << std::endl;
      torch::save(model, folder + "/model-" + std::to_string(iteration) + ".pt");
      torch::save(optimizer, folder + "/optimizer-" + std::to_string(iteration) + ".pt");
    }
  }
}

int main(int argc, char** argv) {
  train(argc, argv);
  return 0;
}
