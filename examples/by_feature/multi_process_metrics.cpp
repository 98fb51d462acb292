// Metrics over all ranks. The last batches are filled up so that the ranks run equally many;
// gather_for_metrics leaves that out again, so each of the 101 samples counts once.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "../command_line.h"

constexpr int64_t kSamples = 101;

struct Evaluation {
  torch::Tensor predicted{};
  torch::Tensor wanted{};
  std::vector<std::string> names{};
  ACCELERATE_FIELDS(predicted, wanted, names)
};

void train() {
  accelerate::Accelerator accelerator;
  const auto numbers = torch::arange(kSamples);
  accelerate::TensorDataset dataset(numbers, numbers % 3);
  auto loader = accelerator.prepare(accelerate::data_loader(dataset, {.batch_size = 8}));

  auto confusion = torch::zeros({3, 3}, torch::kInt64);
  std::vector<std::string> names;
  int64_t rows = 0;
  for (auto& batch : loader) {
    // A "model" that takes every multiple of 10 for class 0.
    Evaluation own{.predicted = batch.target.masked_fill(batch.data % 10 == 0, 0),
                   .wanted = batch.target};
    const auto ids = batch.data.cpu();
    for (int64_t i = 0; i < ids.size(0); ++i) {
      own.names.push_back("sample " + std::to_string(ids[i].item<int64_t>()));
    }
    const Evaluation all = accelerator.gather_for_metrics(own);  // one exchange for all fields
    confusion.view({9}).add_(
        torch::bincount((3 * all.wanted + all.predicted).cpu(), {}, /*minlength=*/9));
    names.insert(names.end(), all.names.begin(), all.names.end());
    rows += accelerator.gather(batch.target).size(0);  // with what fills up
  }
  const auto right = confusion.diagonal().sum().item<int64_t>();
  accelerator.print(names.size(), " samples in ", rows, " rows, last ", names.back());
  accelerator.print(right, " right, accuracy ",
                    static_cast<double>(right) / static_cast<double>(kSamples));
}

int main(int argc, char** argv) {
  const Words none(argc, argv, "", "Metrics over all ranks in which each sample counts once.");
  return accelerate::run(train);
}
