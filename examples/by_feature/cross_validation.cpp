// Three-fold cross-validation: each fold is tested on a model that has not seen it, and the scores
// of all folds come together in one list, each sample once, on any number of ranks.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <vector>

#include "../command_line.h"

constexpr size_t kSamples = 100;
constexpr size_t kFolds = 3;

void train() {
  accelerate::Accelerator accelerator;
  accelerate::set_seed(1);
  const auto points = torch::randn({kSamples, 2});
  const auto labels = (points.select(1, 0) > points.select(1, 1)).to(torch::kInt64);
  accelerate::TensorDataset dataset(points, labels);

  std::vector<torch::Tensor> hits;
  for (size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<size_t> seen;
    std::vector<size_t> held_out;
    for (size_t i = 0; i < kSamples; ++i) (i % kFolds == fold ? held_out : seen).push_back(i);

    torch::nn::Linear linear(2, 2);
    torch::optim::AdamW adamw(linear->parameters(), 0.1);
    auto [model, optimizer, train_loader, test_loader] = accelerator.prepare(
        linear, adamw,
        accelerate::data_loader(accelerate::subset(dataset, seen),
                                {.batch_size = 8, .shuffle = true, .seed = fold}),
        accelerate::data_loader(accelerate::subset(dataset, held_out), {.batch_size = 8}));

    model->train();
    for (int epoch = 0; epoch < 10; ++epoch) {
      for (auto& batch : train_loader) {
        optimizer.zero_grad();
        accelerator.backward(torch::nn::functional::cross_entropy(model(batch.data), batch.target));
        optimizer.step();
      }
    }
    model->eval();
    const torch::NoGradGuard no_grad;
    for (auto& batch : test_loader) {
      const auto hit = model(batch.data).argmax(1).eq(batch.target);
      hits.push_back(accelerator.gather_for_metrics(hit));
    }
    accelerator.free_memory();  // the next fold begins with nothing of this one
  }
  const auto all = torch::cat(hits);
  accelerator.print(all.size(0), " of ", kSamples, " samples tested, accuracy ",
                    all.to(torch::kFloat).mean().item<double>());
}

int main(int argc, char** argv) {
  const Words none(
      argc, argv, "",
      "Three-fold cross-validation: the scores of all folds in one list, each sample once.");
  return accelerate::run(train);
}
