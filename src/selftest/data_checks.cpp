// How prepared loaders share data out.
#include <accelerate/dataset.h>
#include <torch/torch.h>

#include <algorithm>

#include "selftest/expect.h"

namespace accelerate::selftest {
namespace {

constexpr int64_t kBatch = 4;

// Fills no whole number of batches on any number of ranks.
int64_t sample_count(Accelerator& accelerator) {
  return kBatch * 3 * accelerator.num_processes() + 3;
}

TensorDataset numbered(int64_t samples) {
  const at::Tensor numbers = torch::arange(samples, at::kLong);
  return {numbers, numbers};
}

// What this rank is given in one pass, in order.
template <class Loader>
at::Tensor pass_of(Loader& loader) {
  std::vector<at::Tensor> seen{torch::empty({0}, at::kLong)};
  for (auto& batch : loader) seen.push_back(batch.data.cpu());
  return torch::cat(seen);
}

at::Tensor sorted(const at::Tensor& values) { return std::get<0>(values.sort()); }

Findings check_each_once(Accelerator& accelerator) {
  const int64_t samples = sample_count(accelerator);
  auto loader = accelerator.prepare(data_loader(numbered(samples), {.batch_size = kBatch}));
  expect_same("samples of all ranks", sorted(accelerator.gather(pass_of(loader))),
              torch::arange(samples, at::kLong));
  return {.detail = std::to_string(samples) + " samples"};
}

Findings check_even_batches(Accelerator& accelerator) {
  const int64_t samples = sample_count(accelerator);
  auto loader = accelerator.prepare(data_loader(numbered(samples), {.batch_size = kBatch}));
  std::vector<at::Tensor> real;
  int64_t batches = 0;
  for (auto& batch : loader) {
    if (accelerator.num_processes() > 1) {
      expect_equal("size of batch " + std::to_string(batches), batch.data.size(0), kBatch);
    }
    real.push_back(accelerator.gather_for_metrics(batch.data).cpu());
    ++batches;
  }
  const std::vector<int64_t> counts = accelerator.gather_object(batches);
  expect_equal("batches of each rank", counts, std::vector<int64_t>(counts.size(), batches));
  expect_same("gather_for_metrics of all batches", torch::cat(real),
              torch::arange(samples, at::kLong));
  return {.detail =
              std::to_string(batches) + " batches on each rank; metrics see each sample once"};
}

// Only the main process can read it.
struct OnMainProcess {
  bool is_main = false;
  int64_t samples = 0;
  size_t size() const { return is_main ? static_cast<size_t>(samples) : 0; }
  Sample get(size_t index) const {
    if (!is_main) throw Mismatch("expected that the main process alone reads");
    const at::Tensor number = torch::tensor(static_cast<int64_t>(index));
    return {number, number};
  }
};

Findings check_dispatch(Accelerator& accelerator) {
  const int64_t samples = sample_count(accelerator);
  auto loader = accelerator.prepare(
      data_loader(OnMainProcess{accelerator.is_main_process(), samples}, {.batch_size = kBatch}));
  std::vector<at::Tensor> real;
  for (auto& batch : loader) real.push_back(accelerator.gather_for_metrics(batch.data).cpu());
  expect_same("samples that the main process has sent", sorted(torch::cat(real)),
              torch::arange(samples, at::kLong));
  return {.detail = "the main process reads for all"};
}

Findings check_split_batches(Accelerator& accelerator) {
  const int ranks = accelerator.num_processes();
  const int64_t samples = kBatch * ranks * 3;
  auto loader = accelerator.prepare(data_loader(numbered(samples), {.batch_size = 2 * ranks}));
  expect_equal("batches of this rank", loader.size(), samples / (2 * ranks));
  expect_same("samples of all ranks", sorted(accelerator.gather(pass_of(loader))),
              torch::arange(samples, at::kLong));
  return {};
}

Findings check_shuffle(Accelerator& accelerator) {
  const int64_t samples = kBatch * 4 * accelerator.num_processes();
  const LoaderOptions options{.batch_size = kBatch, .shuffle = true, .seed = 11};
  auto loader = accelerator.prepare(data_loader(numbered(samples), options));
  const at::Tensor first = accelerator.gather(pass_of(loader));
  const at::Tensor second = accelerator.gather(pass_of(loader));
  expect_same("samples of the first pass", sorted(first), torch::arange(samples, at::kLong));
  expect_same("samples of the second pass", sorted(second), torch::arange(samples, at::kLong));
  expect_true("the second pass has a different order from the first", !first.equal(second));
  auto again = accelerator.prepare(data_loader(numbered(samples), options));
  expect_same("order of another loader with the same seed", accelerator.gather(pass_of(again)),
              first);
  return {.detail = "a new order each pass, the same for the same seed"};
}

AcceleratorOptions with(const ShardingOptions& sharding) {
  AcceleratorOptions options = plain_options();
  options.data_loader = sharding;
  return options;
}

}  // namespace

std::vector<Check> data_checks() {
  return {{"data", "every sample once", with({.even_batches = false}), check_each_once},
          {"data", "even batches", plain_options(), check_even_batches},
          {"data", "dispatched batches", with({.dispatch_batches = true}), check_dispatch},
          {"data", "split batches", with({.split_batches = true}), check_split_batches},
          {"data", "shuffled order", plain_options(), check_shuffle}};
}

}  // namespace accelerate::selftest
