// A dataset of one's own, which reads pictures and labels from a table, in an order that is
// shuffled in every epoch, with two threads that read.
#include <torch/torch.h>

#include <iostream>
#include <string>
#include <vector>

#include "data.h"

constexpr int64_t kEpochs = 4;
constexpr size_t kBatchSize = 24;

class Pictures : public torch::data::datasets::Dataset<Pictures> {
 public:
  explicit Pictures(std::vector<std::string> table) : table_(std::move(table)) {}

  torch::data::Example<> get(size_t index) override {
    const std::string& line = table_[index];
    std::vector<float> pixels;
    for (const char c : line.substr(0, line.find(','))) {
      if (c != '/') pixels.push_back(c == '#' ? 1.0F : 0.0F);
    }
    const int64_t label = std::stoll(line.substr(line.find(',') + 1));
    return {torch::tensor(pixels), torch::tensor(label)};
  }
  torch::optional<size_t> size() const override { return table_.size(); }

 private:
  std::vector<std::string> table_;
};

int main() {
  torch::manual_seed(1);
  torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);

  auto pictures = Pictures(table_of_pictures(240)).map(torch::data::transforms::Stack<>());
  const auto size = static_cast<double>(pictures.size().value());
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      std::move(pictures), torch::data::DataLoaderOptions().batch_size(kBatchSize).workers(2));

  torch::nn::Sequential model(torch::nn::Linear(36, 32), torch::nn::ReLU(),
                              torch::nn::Linear(32, 3));
  model->to(device);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));

  for (int64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    double loss_sum = 0;
    int64_t correct = 0;
    for (auto& batch : *loader) {
      auto data = batch.data.to(device);
      auto target = batch.target.to(device);
      auto output = model->forward(data);
      auto loss = torch::nn::functional::cross_entropy(output, target);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>() * static_cast<double>(data.size(0));
      correct += output.argmax(1).eq(target).sum().item<int64_t>();
    }
    std::cout << "epoch " << epoch << " loss " << loss_sum / size << " accuracy " << correct / size
              << std::endl;
  }
}
