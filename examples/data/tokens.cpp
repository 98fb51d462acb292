// Trains a bigram model on a file of token ids (uint16, no header) that is mapped into memory. The
// order is computed index by index: no list of all blocks, however long the file is.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <string>

#include "../command_line.h"

constexpr int64_t kVocabulary = 256;

void train(const std::string& file) {
  accelerate::Accelerator accelerator;
  torch::manual_seed(1);

  const accelerate::TokenDataset text(file,
                                      {.block = 32, .stored = accelerate::StoredToken::kUint16});
  auto batches = accelerate::data_loader(
      text, {.batch_size = 8, .num_workers = 2, .sampler = accelerate::permutation_sampler()});
  torch::nn::Embedding next(kVocabulary, kVocabulary);  // scores of the token after each token
  torch::optim::AdamW adamw(next->parameters(), 0.1);
  auto [model, optimizer, loader] = accelerator.prepare(next, adamw, batches);
  accelerator.print(text.tokens(), " tokens, ", text.size(), " blocks, ", loader.size(),
                    " batches for each process");

  for (int epoch = 1; epoch <= 3; ++epoch) {
    auto sums = torch::zeros({2}, accelerator.device());
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(model(batch.data).flatten(0, 1),
                                                             batch.target.flatten());
      accelerator.backward(loss);
      optimizer.step();
      sums[0] += loss.detach() * batch.info().valid;
      sums[1] += batch.info().valid;
    }
    sums = accelerator.reduce(sums).cpu();
    accelerator.print("epoch ", epoch, ": ", sums[1].item<int64_t>(), " blocks, loss ",
                      sums[0].item<double>() / sums[1].item<double>());
  }
}

int main(int argc, char** argv) {
  const Words words(argc, argv, "FILE",
                    "Trains a bigram model on a file of token ids (uint16, below 256, no header).\n"
                    "  python3 -c 'import sys, array; array.array(\"H\", "
                    "open(\"README.md\", \"rb\").read()).tofile(sys.stdout.buffer)' > tokens.bin");
  return accelerate::run([file = words.file(0)] { train(file); });
}
