// In which order a pass visits the samples of a dataset.
//
//   auto loader = accelerate::data_loader(
//       dataset, {.batch_size = 64, .sampler = accelerate::permutation_sampler()});
//
// An order is a pure function of (seed, epoch, position): all ranks compute the same one, and any
// position is reached without visiting those before it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "accelerate/export.h"

namespace accelerate {

// The order of one pass. Read from several threads at once.
class ACCELERATE_EXPORT SampleOrder {
 public:
  virtual ~SampleOrder() = default;
  // Positions in the pass.
  virtual int64_t size() const = 0;
  // Writes the indices of the samples at positions first, first + 1, ...; all of them below size().
  virtual void read(int64_t first, std::span<int64_t> indices) const = 0;
};

// Makes the order of each pass. Write your own by deriving from it, or use sampler_of().
class ACCELERATE_EXPORT Sampler {
 public:
  virtual ~Sampler() = default;
  // Positions in a pass over a dataset of `samples` samples.
  virtual int64_t size(int64_t samples) const { return samples; }
  // The order of pass `epoch`. Called once per pass, on each rank with the same arguments; must
  // give the same order for the same arguments, size(samples) positions long, with indices below
  // `samples` (a loader that meets another one throws DataError).
  virtual std::shared_ptr<const SampleOrder> order(int64_t samples, uint64_t seed,
                                                   int64_t epoch) const = 0;
};

// 0, 1, 2, ...
ACCELERATE_EXPORT std::shared_ptr<const Sampler> sequential_sampler();

// torch's randperm of a CPU generator seeded with seed + epoch: what LoaderOptions::shuffle uses,
// and the order of the Python library. Holds 8 bytes per sample.
ACCELERATE_EXPORT std::shared_ptr<const Sampler> random_sampler();

// A permutation keyed by (seed, epoch) and computed index by index: no memory whatever the number
// of samples, and a pass starts at once. Use it where a list of all samples is too long.
ACCELERATE_EXPORT std::shared_ptr<const Sampler> permutation_sampler();

// `draws` samples per pass, each drawn with a probability in proportion to its weight, by torch's
// multinomial of a CPU generator seeded with seed + epoch. Throws UsageError for no weights, a
// weight that is negative or not finite, weights that are all zero, and for more draws than
// weights above zero without replacement.
ACCELERATE_EXPORT std::shared_ptr<const Sampler> weighted_sampler(std::vector<double> weights,
                                                                  int64_t draws,
                                                                  bool replacement = true);

// These indices, in this order, in every pass.
ACCELERATE_EXPORT std::shared_ptr<const Sampler> sampler_of(std::vector<int64_t> indices);
// What `indices` returns for a pass; always `size` many, else DataError.
ACCELERATE_EXPORT std::shared_ptr<const Sampler> sampler_of(
    int64_t size, std::function<std::vector<int64_t>(uint64_t seed, int64_t epoch)> indices);

// The batches of one pass. Read from several threads at once.
class ACCELERATE_EXPORT BatchOrder {
 public:
  virtual ~BatchOrder() = default;
  virtual int64_t size() const = 0;
  // Writes the samples of batch `number`, which is below size(), over `indices`.
  virtual void read(int64_t number, std::vector<int64_t>& indices) const = 0;
};

// Chooses whole batches instead of samples: by length, by cost, by class.
class ACCELERATE_EXPORT BatchSampler {
 public:
  virtual ~BatchSampler() = default;
  // The size of every batch but the last, which may be smaller: then ranks are dealt samples as
  // with LoaderOptions::batch_size. Nothing: sizes vary, and ranks are dealt whole batches.
  virtual std::optional<int64_t> batch_size() const { return std::nullopt; }
  // As Sampler::order().
  virtual std::shared_ptr<const BatchOrder> order(int64_t samples, uint64_t seed,
                                                  int64_t epoch) const = 0;
};

// These batches in every pass. With `batch_size` all but the last have that size, else DataError.
ACCELERATE_EXPORT std::shared_ptr<const BatchSampler> batches_of(
    std::vector<std::vector<int64_t>> batches, std::optional<int64_t> batch_size = std::nullopt);
// What `batches` returns for a pass.
ACCELERATE_EXPORT std::shared_ptr<const BatchSampler> batches_by(
    std::function<std::vector<std::vector<int64_t>>(uint64_t seed, int64_t epoch)> batches,
    std::optional<int64_t> batch_size = std::nullopt);

}  // namespace accelerate
