// Looks for the largest batch that fits. If one rank runs out of memory, all ranks try a smaller
// one: none is left waiting. Usage: memory_safe_batch_size [SAMPLES_THAT_FIT_ON_THE_LAST_RANK]
#include <new>
#include <sstream>
#include <string>

#include "../command_line.h"
#include "toy.h"

void train_with(int64_t fits) {
  accelerate::Accelerator ranks;  // lets the ranks agree on a size
  std::ostringstream tried;

  const auto train = [&](int64_t batch_size) {
    tried << ' ' << batch_size;
    // One that lives as long as the attempt: a rank that fails closes it and so frees the others.
    accelerate::Accelerator accelerator;
    auto line = toy::flat_line();
    torch::optim::SGD sgd(line->parameters(), 0.3);
    auto batches = accelerate::data_loader(toy::points_on_a_line(256), {.batch_size = batch_size});
    auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);
    double last = 0;
    for (int epoch = 0; epoch < 20; ++epoch) {
      for (auto& batch : loader) {
        // What a real model would do by itself.
        if (accelerator.is_last_process() && batch_size > fits) throw std::bad_alloc();
        optimizer.zero_grad();
        const auto loss = torch::mse_loss(model(batch.data), batch.target);
        accelerator.backward(loss);
        optimizer.step();
        last = loss.item<double>();
      }
    }
    return last;
  };
  const double loss = accelerate::find_executable_batch_size(
      train, {.starting_batch_size = 64,
              .reduce = [](int64_t size) { return size / 2; },
              .communicator = &ranks.communicator()});
  ranks.print("tried", tried.str(), ", loss ", loss);
}

int main(int argc, char** argv) {
  const Words words(argc, argv, "[SAMPLES_THAT_FIT_ON_THE_LAST_RANK]",
                    "Looks for the largest batch that fits into the memory of all ranks.");
  return accelerate::run([&] { train_with(words.count(0, 20)); });
}
