// Batches of 64 are wanted, but memory may hold fewer: the batch becomes smaller until it fits, and
// gradient accumulation makes up for it. The result is the same whatever fits.
// Usage: automatic_gradient_accumulation [SAMPLES_THAT_FIT]
#include <new>
#include <string>

#include "../command_line.h"
#include "toy.h"

constexpr int64_t kWanted = 64;

void train_with(int64_t fits) {
  accelerate::Accelerator ranks;  // lets the ranks agree on a size

  const auto train = [&](int64_t batch_size) {
    // One that lives as long as the attempt: a rank that fails closes it and so frees the others.
    accelerate::Accelerator accelerator({.gradient_accumulation = {.steps = kWanted / batch_size},
                                         .data_loader = {.split_batches = true}});
    auto line = toy::flat_line();
    torch::optim::SGD sgd(line->parameters(), 0.05);
    auto batches = accelerate::data_loader(toy::points_on_a_line(256), {.batch_size = batch_size});
    auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);
    for (int epoch = 0; epoch < 5; ++epoch) {
      for (auto& batch : loader) {
        if (batch_size > fits) throw std::bad_alloc();  // what a real model would do by itself
        auto window = accelerator.accumulate(model);
        accelerator.backward(torch::mse_loss(model(batch.data), batch.target));
        optimizer.step();
        optimizer.zero_grad();
      }
    }
    const auto learned = toy::parameters_of(model->parameters());
    accelerator.print("batch size ", batch_size, ", accumulation ",
                      accelerator.gradient_accumulation_steps(),
                      ", y = ", learned[0].item<double>(), " x + ", learned[1].item<double>());
  };
  accelerate::find_executable_batch_size(train, {.starting_batch_size = kWanted,
                                                 .reduce = [](int64_t size) { return size / 2; },
                                                 .communicator = &ranks.communicator()});
}

int main(int argc, char** argv) {
  const Words words(argc, argv, "[SAMPLES_THAT_FIT]",
                    "Accumulates gradients where memory holds less than the batch that is wanted.");
  return accelerate::run([&] { train_with(words.count(0, 20)); });
}
