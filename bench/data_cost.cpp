#include <ATen/ATen.h>
#include <accelerate/accelerate.h>

#include <stdexcept>

#include "data_parts.h"
#include "turns.h"

namespace bench {
namespace {

constexpr int64_t kBatchSize = 64;
constexpr int64_t kBatches = 4'000;
constexpr int kWorldSize = 8;

// Gives the same tensor again and again: all the time that passes is the loader's.
class ReadyBatches {
 public:
  explicit ReadyBatches(int64_t samples) : samples_(static_cast<size_t>(samples)) {}

  size_t size() const { return samples_; }
  accelerate::UnlabelledBatch get_batch(c10::ArrayRef<size_t>) const { return {batch_}; }

 private:
  size_t samples_;
  at::Tensor batch_ = at::zeros({kBatchSize, 1});
};

using Loader = accelerate::DataLoader<ReadyBatches>;

// Of all batches but the first: begin(), which makes the order and the workers, is not a cost of
// each batch.
double seconds_a_batch(const Loader& loader) {
  int64_t samples = 0;
  auto batch = loader.begin();
  const Stopwatch watch;
  for (; batch != loader.end(); ++batch) samples += batch->info().size;
  const double seconds = watch.seconds();
  if (samples != kBatches * kBatchSize) throw std::runtime_error("the loader left samples out");
  return seconds / static_cast<double>(kBatches - 1);
}

}  // namespace

nlohmann::json measure_cost(int repetitions) {
  accelerate::Accelerator accelerator({.cpu = true});
  std::vector<Contender> contenders;
  const auto add = [&](const std::string& name, const Loader& loader) {
    if (loader.size() != kBatches) throw std::runtime_error(name + ": wrong number of batches");
    contenders.push_back({name, [loader] { return seconds_a_batch(loader); }});
  };
  const std::vector<std::pair<std::string, std::shared_ptr<const accelerate::Sampler>>> samplers{
      {"in order", accelerate::sequential_sampler()},
      {"random_sampler", accelerate::random_sampler()},
      {"permutation_sampler", accelerate::permutation_sampler()}};
  for (const auto& [sampler_name, sampler] : samplers) {
    const auto loader = [&, &sampler = sampler](int64_t ranks, int workers, int prefetch = 2) {
      return accelerate::data_loader(ReadyBatches(ranks * kBatches * kBatchSize),
                                     {.batch_size = kBatchSize,
                                      .num_workers = workers,
                                      .prefetch = prefetch,
                                      .seed = 1,
                                      .sampler = sampler});
    };
    add("1 process, " + sampler_name, accelerator.prepare(loader(1, 0)));
    add("rank 3 of 8, " + sampler_name,
        loader(kWorldSize, 0).sharded({.rank = 3, .world_size = kWorldSize, .seed = 1}));
    if (sampler_name != "in order") continue;
    add("1 process, in order, 1 worker", accelerator.prepare(loader(1, 1)));
    add("1 process, in order, 2 workers", accelerator.prepare(loader(1, 2)));
    add("1 process, in order, 1 worker, prefetch 16", accelerator.prepare(loader(1, 1, 16)));
  }
  return {{"name", "a loader over a dataset that does nothing, for each of 4,000 batches of 64"},
          {"rows", Turns(contenders, repetitions).report()}};
}

}  // namespace bench
