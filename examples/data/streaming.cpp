// Trains on a text file that is read line by line, never as a whole: "0 or 1, a tab, words".
// Reviews differ in length: a batch is as wide as its longest.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "../command_line.h"

constexpr int64_t kWords = 1000;  // ids 1 to kWords; 0 is padding

struct Review {
  int64_t label = 0;
  std::vector<int64_t> words{};
};

struct Reviews {
  torch::Tensor label{};  // [B]
  torch::Tensor words{};  // [B, longest]
  ACCELERATE_FIELDS(label, words)
};

Review parse(const std::string& line) {
  std::istringstream text(line);
  Review review;
  if (!(text >> review.label)) throw std::runtime_error("no label in '" + line + "'");
  for (std::string word; text >> word;) {
    review.words.push_back(1 + static_cast<int64_t>(std::hash<std::string>()(word) % kWords));
  }
  return review;
}

// Reopens the file for each pass. The result gives one review at each call.
auto open(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  return [file = std::move(file)]() mutable -> std::optional<Review> {
    std::string line;
    if (!std::getline(file, line)) return std::nullopt;
    return parse(line);
  };
}

Reviews pad(const std::vector<Review>& reviews) {
  const auto size = static_cast<int64_t>(reviews.size());
  size_t longest = 1;
  for (const Review& review : reviews) longest = std::max(longest, review.words.size());
  Reviews batch{.label = torch::empty({size}, torch::kInt64),
                .words = torch::zeros({size, static_cast<int64_t>(longest)}, torch::kInt64)};
  for (int64_t i = 0; i < size; ++i) {
    const Review& review = reviews[static_cast<size_t>(i)];
    batch.label[i] = review.label;
    std::copy(review.words.begin(), review.words.end(), batch.words[i].data_ptr<int64_t>());
  }
  return batch;
}

struct ClassifierImpl : torch::nn::Module {
  torch::nn::Embedding words{kWords + 1, 16};
  torch::nn::Linear out{16, 2};
  ClassifierImpl() {
    register_module("words", words);
    register_module("out", out);
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    const auto real = ids.ne(0).unsqueeze(2);
    return out((words(ids) * real).sum(1) / real.sum(1).clamp_min(1));
  }
};
TORCH_MODULE(Classifier);

void train(const std::string& path) {
  accelerate::Accelerator accelerator;
  torch::manual_seed(1);

  auto lines = accelerate::stream([path] { return open(path); });
  auto batches = accelerate::data_loader(lines, {.batch_size = 8, .num_workers = 1}, pad);
  Classifier classifier;
  torch::optim::AdamW adamw(classifier->parameters(), 0.05);
  auto [model, optimizer, loader] = accelerator.prepare(classifier, adamw, batches);

  for (int epoch = 1; epoch <= 3; ++epoch) {
    auto counts = torch::zeros({2}, torch::dtype(torch::kInt64).device(accelerator.device()));
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const auto scores = model(batch.words);
      accelerator.backward(torch::nn::functional::cross_entropy(scores, batch.label));
      optimizer.step();
      const int64_t valid = batch.info().valid;
      counts[0] += valid;
      counts[1] += scores.argmax(1).eq(batch.label).slice(0, 0, valid).sum();
    }
    counts = accelerator.reduce(counts).cpu();
    const auto reviews = counts[0].item<int64_t>();
    accelerator.print("epoch ", epoch, ": ", reviews, " reviews, accuracy ",
                      counts[1].item<double>() / static_cast<double>(reviews));
  }
}

int main(int argc, char** argv) {
  const Words words(argc, argv, "FILE",
                    "Trains on a text file that is read line by line: 0 or 1, a tab, words.\n"
                    "  printf '1\\tso good\\n0\\tso bad\\n' > reviews.tsv   makes a small one");
  return accelerate::run([file = words.file(0)] { train(file); });
}
