#include "accelerate/samplers.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "accelerate/errors.h"
#include "data/keyed_permutation.h"

namespace accelerate {
namespace {

at::Generator generator_for(uint64_t seed, int64_t epoch) {
  return at::make_generator<at::CPUGeneratorImpl>(seed + static_cast<uint64_t>(epoch));
}

class SequentialOrder final : public SampleOrder {
 public:
  explicit SequentialOrder(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  void read(int64_t first, std::span<int64_t> indices) const override {
    std::iota(indices.begin(), indices.end(), first);
  }

 private:
  int64_t size_;
};

class PermutedOrder final : public SampleOrder {
 public:
  PermutedOrder(int64_t size, uint64_t seed, int64_t epoch)
      : size_(size), permutation_(size, seed, static_cast<uint64_t>(epoch)) {}
  int64_t size() const override { return size_; }
  void read(int64_t first, std::span<int64_t> indices) const override {
    permutation_.read(first, indices);
  }

 private:
  int64_t size_;
  KeyedPermutation permutation_;
};

// A list of indices that a tensor holds.
class TensorOrder final : public SampleOrder {
 public:
  explicit TensorOrder(const at::Tensor& indices)
      : indices_(indices.contiguous()), values_(indices_.data_ptr<int64_t>()) {}
  int64_t size() const override { return indices_.numel(); }
  void read(int64_t first, std::span<int64_t> indices) const override {
    std::copy_n(values_ + first, indices.size(), indices.begin());
  }

 private:
  at::Tensor indices_;
  const int64_t* values_;
};

class ListedOrder final : public SampleOrder {
 public:
  explicit ListedOrder(std::vector<int64_t> indices) : indices_(std::move(indices)) {}
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  void read(int64_t first, std::span<int64_t> indices) const override {
    std::copy_n(indices_.begin() + first, indices.size(), indices.begin());
  }

 private:
  std::vector<int64_t> indices_;
};

class SequentialSampler final : public Sampler {
 public:
  std::shared_ptr<const SampleOrder> order(int64_t samples, uint64_t, int64_t) const override {
    return std::make_shared<SequentialOrder>(samples);
  }
};

class RandomSampler final : public Sampler {
 public:
  std::shared_ptr<const SampleOrder> order(int64_t samples, uint64_t seed,
                                           int64_t epoch) const override {
    return std::make_shared<TensorOrder>(
        at::randperm(samples, generator_for(seed, epoch), at::TensorOptions().dtype(at::kLong)));
  }
};

class PermutationSampler final : public Sampler {
 public:
  std::shared_ptr<const SampleOrder> order(int64_t samples, uint64_t seed,
                                           int64_t epoch) const override {
    return std::make_shared<PermutedOrder>(samples, seed, epoch);
  }
};

class WeightedSampler final : public Sampler {
 public:
  WeightedSampler(const std::vector<double>& weights, int64_t draws, bool replacement)
      : weights_(at::tensor(weights, at::kDouble)), draws_(draws), replacement_(replacement) {}
  int64_t size(int64_t) const override { return draws_; }
  std::shared_ptr<const SampleOrder> order(int64_t, uint64_t seed, int64_t epoch) const override {
    if (draws_ == 0) return std::make_shared<SequentialOrder>(0);
    return std::make_shared<TensorOrder>(
        at::multinomial(weights_, draws_, replacement_, generator_for(seed, epoch)));
  }

 private:
  at::Tensor weights_;
  int64_t draws_;
  bool replacement_;
};

class ListSampler final : public Sampler {
 public:
  explicit ListSampler(std::vector<int64_t> indices)
      : order_(std::make_shared<ListedOrder>(std::move(indices))) {}
  int64_t size(int64_t) const override { return order_->size(); }
  std::shared_ptr<const SampleOrder> order(int64_t, uint64_t, int64_t) const override {
    return order_;
  }

 private:
  std::shared_ptr<const ListedOrder> order_;
};

class FunctionSampler final : public Sampler {
 public:
  using Function = std::function<std::vector<int64_t>(uint64_t, int64_t)>;
  FunctionSampler(int64_t size, Function indices) : size_(size), indices_(std::move(indices)) {}
  int64_t size(int64_t) const override { return size_; }
  std::shared_ptr<const SampleOrder> order(int64_t, uint64_t seed, int64_t epoch) const override {
    auto order = std::make_shared<ListedOrder>(indices_(seed, epoch));
    if (order->size() != size_) {
      throw DataError(
          {.what = "the sampler gave " + std::to_string(order->size()) +
                   " indices for a pass, it was made for " + std::to_string(size_),
           .hint = "give sampler_of() the number of indices that its function returns"});
    }
    return order;
  }

 private:
  int64_t size_;
  Function indices_;
};

class ListedBatches final : public BatchOrder {
 public:
  explicit ListedBatches(std::vector<std::vector<int64_t>> batches)
      : batches_(std::move(batches)) {}
  int64_t size() const override { return static_cast<int64_t>(batches_.size()); }
  void read(int64_t number, std::vector<int64_t>& indices) const override {
    indices = batches_[static_cast<size_t>(number)];
  }

 private:
  std::vector<std::vector<int64_t>> batches_;
};

class ListBatchSampler final : public BatchSampler {
 public:
  ListBatchSampler(std::vector<std::vector<int64_t>> batches, std::optional<int64_t> batch_size)
      : order_(std::make_shared<ListedBatches>(std::move(batches))), batch_size_(batch_size) {}
  std::optional<int64_t> batch_size() const override { return batch_size_; }
  std::shared_ptr<const BatchOrder> order(int64_t, uint64_t, int64_t) const override {
    return order_;
  }

 private:
  std::shared_ptr<const ListedBatches> order_;
  std::optional<int64_t> batch_size_;
};

class FunctionBatchSampler final : public BatchSampler {
 public:
  using Function = std::function<std::vector<std::vector<int64_t>>(uint64_t, int64_t)>;
  FunctionBatchSampler(Function batches, std::optional<int64_t> batch_size)
      : batches_(std::move(batches)), batch_size_(batch_size) {}
  std::optional<int64_t> batch_size() const override { return batch_size_; }
  std::shared_ptr<const BatchOrder> order(int64_t, uint64_t seed, int64_t epoch) const override {
    return std::make_shared<ListedBatches>(batches_(seed, epoch));
  }

 private:
  Function batches_;
  std::optional<int64_t> batch_size_;
};

void check_weights(const std::vector<double>& weights, int64_t draws, bool replacement) {
  const auto unusable = [](double weight) { return !std::isfinite(weight) || weight < 0; };
  if (std::ranges::any_of(weights, unusable)) {
    throw UsageError({.what = "a weight of a sampler is negative or not finite"});
  }
  const int64_t positive = std::ranges::count_if(weights, [](double weight) { return weight > 0; });
  if (draws < 0 || positive == 0) {
    throw UsageError({.what = "cannot draw " + std::to_string(draws) + " samples from " +
                              std::to_string(positive) + " weights above zero"});
  }
  if (!replacement && draws > positive) {
    throw UsageError({.what = "cannot draw " + std::to_string(draws) +
                              " samples without replacement from " + std::to_string(positive) +
                              " weights above zero",
                      .hint = "draw fewer, or with replacement"});
  }
}

template <class Function>
void check_function(const Function& function) {
  if (!function) throw UsageError({.what = "a sampler needs a function, got an empty one"});
}

}  // namespace

std::shared_ptr<const Sampler> sequential_sampler() {
  return std::make_shared<SequentialSampler>();
}

std::shared_ptr<const Sampler> random_sampler() { return std::make_shared<RandomSampler>(); }

std::shared_ptr<const Sampler> permutation_sampler() {
  return std::make_shared<PermutationSampler>();
}

std::shared_ptr<const Sampler> weighted_sampler(std::vector<double> weights, int64_t draws,
                                                bool replacement) {
  check_weights(weights, draws, replacement);
  return std::make_shared<WeightedSampler>(weights, draws, replacement);
}

std::shared_ptr<const Sampler> sampler_of(std::vector<int64_t> indices) {
  return std::make_shared<ListSampler>(std::move(indices));
}

std::shared_ptr<const Sampler> sampler_of(
    int64_t size, std::function<std::vector<int64_t>(uint64_t, int64_t)> indices) {
  check_function(indices);
  return std::make_shared<FunctionSampler>(size, std::move(indices));
}

std::shared_ptr<const BatchSampler> batches_of(std::vector<std::vector<int64_t>> batches,
                                               std::optional<int64_t> batch_size) {
  return std::make_shared<ListBatchSampler>(std::move(batches), batch_size);
}

std::shared_ptr<const BatchSampler> batches_by(
    std::function<std::vector<std::vector<int64_t>>(uint64_t, int64_t)> batches,
    std::optional<int64_t> batch_size) {
  check_function(batches);
  return std::make_shared<FunctionBatchSampler>(std::move(batches), batch_size);
}

}  // namespace accelerate
