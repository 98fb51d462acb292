// Passes over so many samples that nobody can list them.
#include <ATen/ATen.h>
#include <accelerate/accelerate.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "data_parts.h"
#include "paired_times.h"
#include "turns.h"

namespace bench {
namespace {

constexpr int64_t kSamples = 1'000'000'000;
constexpr int64_t kBatchSize = 64;
constexpr int64_t kSkipped = 1'000'000;

// Sample i is the number i.
struct Numbers {
  size_t size() const { return kSamples; }
  accelerate::UnlabelledBatch get_batch(c10::ArrayRef<size_t> indices) const {
    at::Tensor batch = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
    std::copy(indices.begin(), indices.end(), batch.data_ptr<int64_t>());
    return {batch};
  }
};

using Loader = accelerate::DataLoader<Numbers>;

Loader loader_with(accelerate::Accelerator& accelerator,
                   std::shared_ptr<const accelerate::Sampler> sampler) {
  return accelerator.prepare(accelerate::data_loader(
      Numbers{}, {.batch_size = kBatchSize, .seed = 1, .sampler = std::move(sampler)}));
}

// Throws unless `batch` is the one that follows the skipped ones.
void require_far_batch(const accelerate::Batch<accelerate::UnlabelledBatch>& batch,
                       const accelerate::Sampler& sampler) {
  std::vector<int64_t> expected(kBatchSize);
  sampler.order(kSamples, 1, 0)->read(kSkipped * kBatchSize, expected);
  if (batch.info().index != kSkipped ||
      !std::equal(expected.begin(), expected.end(), batch.data.data_ptr<int64_t>())) {
    throw std::runtime_error("the first batch after the skipped ones is wrong");
  }
}

double resident_mb() {
  std::ifstream in("/proc/self/statm");
  double pages = 0;
  in >> pages >> pages;
  if (!in) throw std::runtime_error("cannot read /proc/self/statm");
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

}  // namespace

nlohmann::json measure_skip(int repetitions) {
  accelerate::Accelerator accelerator({.cpu = true});
  std::vector<Contender> contenders;
  const auto add = [&](const std::string& name,
                       std::shared_ptr<const accelerate::Sampler> sampler) {
    const Loader loader = loader_with(accelerator, sampler);
    accelerate::LoaderState state = loader.state_dict();
    state.position = kSkipped * kBatchSize;
    contenders.push_back({"skip_first_batches(), " + name, [=] {
                            const Stopwatch watch;
                            const auto batch = loader.skip_first_batches(kSkipped).begin();
                            const double seconds = watch.seconds();
                            require_far_batch(*batch, *sampler);
                            return seconds;
                          }});
    Loader resumed = loader_with(accelerator, sampler);
    contenders.push_back({"load_state_dict(), " + name, [=]() mutable {
                            const Stopwatch watch;
                            resumed.load_state_dict(state);
                            const auto batch = resumed.begin();
                            const double seconds = watch.seconds();
                            require_far_batch(*batch, *sampler);
                            return seconds;
                          }});
  };
  add("in order", accelerate::sequential_sampler());
  add("permutation_sampler", accelerate::permutation_sampler());
  return {{"name", "the first batch after 1,000,000, of 10^9 samples at batch 64"},
          {"rows", Turns(contenders, repetitions).report()}};
}

nlohmann::json measure_memory() {
  constexpr int kBatchesAPlace = 100;
  accelerate::Accelerator accelerator({.cpu = true});
  // What libtorch needs for its first tensors is not the loader's.
  (void)Numbers{}.get_batch(std::vector<size_t>(kBatchSize));
  nlohmann::json rows = nlohmann::json::array();
  for (const int workers : {0, 2}) {
    const double before = resident_mb();
    auto loader = accelerator.prepare(
        accelerate::data_loader(Numbers{}, {.batch_size = kBatchSize,
                                            .num_workers = workers,
                                            .seed = 1,
                                            .sampler = accelerate::permutation_sampler()}));
    int64_t batches = 0;
    double most = 0;
    for (int64_t place = 0; place < 10; ++place) {
      accelerate::LoaderState state = loader.state_dict();
      state.position = place * (kSamples / 10) / kBatchSize * kBatchSize;
      loader.load_state_dict(state);
      int64_t here = 0;
      for (const auto& batch : loader) {
        if (batch.info().index != state.position / kBatchSize + here) {
          throw std::runtime_error("the loader went on in the wrong place");
        }
        if (++here == kBatchesAPlace) break;
      }
      batches += here;
      most = std::max(most, resident_mb());
    }
    rows.push_back({{"name", std::to_string(workers) + " workers"},
                    {"before_mb", before},
                    {"growth_mb", most - before},
                    {"batches", batches}});
  }
  return {{"name", "resident memory that a loader over 10^9 samples adds"}, {"rows", rows}};
}

}  // namespace bench
