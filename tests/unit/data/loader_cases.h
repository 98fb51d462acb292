// Random loaders for property tests: each is decided by one seed, which a failure prints.
#pragma once

#include <accelerate/data_loader.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <ranges>
#include <sstream>
#include <string>
#include <vector>

namespace accelerate::test {

using Batches = std::vector<std::vector<int64_t>>;

enum class Source { kDataset, kStream, kEndlessStream };  // the last does not know its length
enum class Order { kInOrder, kRandom, kPermutation, kListed };
enum class Batching { kSize, kFixedSampler, kVaryingSampler };

// Draws small numbers from one seed, the same on every platform.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  int64_t up_to(int64_t largest) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(largest + 1));
  }
  bool flip() { return up_to(1) == 1; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[up_to(static_cast<int64_t>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

struct LoaderCase {
  explicit LoaderCase(uint64_t case_seed) : seed(case_seed), dice(case_seed) {
    source = dice.one_of({Source::kDataset, Source::kDataset, Source::kDataset, Source::kStream,
                          Source::kEndlessStream});
    ranks = static_cast<int>(1 + dice.up_to(4));
    other_ranks = static_cast<int>(1 + dice.up_to(4));
    if (source == Source::kDataset) {
      order = dice.one_of({Order::kInOrder, Order::kRandom, Order::kPermutation, Order::kListed});
      batching = dice.one_of(
          {Batching::kSize, Batching::kSize, Batching::kFixedSampler, Batching::kVaryingSampler});
    }
    split = batching != Batching::kVaryingSampler && dice.flip();
    batch_size = 1 + dice.up_to(4);
    if (split) batch_size *= std::lcm(ranks, other_ranks);
    even = dice.flip();
    drop_last = dice.up_to(2) == 0;
    workers = static_cast<int>(dice.up_to(3));
    prefetch = static_cast<int>(1 + dice.up_to(2));
    epoch = dice.up_to(2);
    n = dice.up_to(8) == 0 ? dice.up_to(2) : dice.up_to(60);
    if (batching == Batching::kVaryingSampler) {
      for (int64_t left = n; left > 0; left -= varying.back()) {
        varying.push_back(std::min(left, 1 + dice.up_to(5)));
      }
    }
  }

  std::string text() const {
    std::ostringstream out;
    out << "case " << seed << ": n " << n << ", batch_size " << batch_size << ", ranks " << ranks
        << ", then " << other_ranks << ", split " << split << ", even " << even << ", drop_last "
        << drop_last << ", order " << static_cast<int>(order) << ", batching "
        << static_cast<int>(batching) << ", source " << static_cast<int>(source) << ", workers "
        << workers << ", prefetch " << prefetch << ", epoch " << epoch;
    return out.str();
  }

  // Samples (or batches, where their sizes vary) that all ranks use up in one round.
  int64_t stride(int ranks_now) const {
    if (batching == Batching::kVaryingSampler) return ranks_now;
    return split ? batch_size : batch_size * ranks_now;
  }
  // What a pass has in the same unit.
  int64_t units() const {
    return batching == Batching::kVaryingSampler ? static_cast<int64_t>(varying.size()) : n;
  }
  bool evens_out(int ranks_now) const { return even && ranks_now > 1 && !drop_last; }

  LoaderShard shard(int rank, int ranks_now) const {
    return {.rank = rank,
            .world_size = ranks_now,
            .split_batches = split,
            .even_batches = even,
            .seed = seed};
  }

  uint64_t seed;
  Dice dice;
  Source source = Source::kDataset;
  Order order = Order::kInOrder;
  Batching batching = Batching::kSize;
  int ranks = 1;
  int other_ranks = 1;
  int64_t n = 0;
  int64_t batch_size = 1;
  bool split = false;
  bool even = true;
  bool drop_last = false;
  int workers = 0;
  int prefetch = 1;
  int64_t epoch = 0;
  std::vector<int64_t> varying;  // sizes of the batches of a varying batch sampler
};

// Sample i is i.
struct Integers {
  int64_t n = 0;
  int64_t size() const { return n; }
  int64_t get(size_t index) const { return static_cast<int64_t>(index); }
};

// 0 .. n-1 shuffled by (seed, epoch).
inline std::vector<int64_t> shuffled(int64_t n, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> indices(static_cast<size_t>(n));
  std::iota(indices.begin(), indices.end(), 0);
  Dice dice(seed + 1000 * static_cast<uint64_t>(epoch));
  for (int64_t i = n - 1; i > 0; --i) {
    std::swap(indices[static_cast<size_t>(i)], indices[static_cast<size_t>(dice.up_to(i))]);
  }
  return indices;
}

// The shuffled samples cut into batches of these sizes; the last may be shorter.
inline Batches cut(const std::vector<int64_t>& samples, const std::vector<int64_t>& sizes) {
  Batches batches;
  size_t at = 0;
  for (size_t k = 0; at < samples.size(); ++k) {
    const int64_t wanted = sizes[std::min(k, sizes.size() - 1)];
    const size_t end = std::min(samples.size(), at + static_cast<size_t>(wanted));
    batches.emplace_back(samples.begin() + static_cast<std::ptrdiff_t>(at),
                         samples.begin() + static_cast<std::ptrdiff_t>(end));
    at = end;
  }
  return batches;
}

inline LoaderOptions options_of(const LoaderCase& c) {
  LoaderOptions options{.batch_size = c.batch_size,
                        .drop_last = c.drop_last,
                        .num_workers = c.workers,
                        .prefetch = c.prefetch,
                        .seed = c.seed};
  if (c.batching == Batching::kSize) {
    if (c.order == Order::kRandom) options.shuffle = true;
    if (c.order == Order::kPermutation) options.sampler = permutation_sampler();
    if (c.order == Order::kListed) {
      options.sampler = sampler_of(
          c.n, [n = c.n](uint64_t seed, int64_t epoch) { return shuffled(n, seed, epoch); });
    }
    return options;
  }
  options.batch_size = LoaderOptions{}.batch_size;  // the batch sampler decides
  const bool fixed = c.batching == Batching::kFixedSampler;
  const auto sizes = fixed ? std::vector<int64_t>{c.batch_size} : c.varying;
  options.batch_sampler =
      batches_by([n = c.n, sizes](uint64_t seed,
                                  int64_t epoch) { return cut(shuffled(n, seed, epoch), sizes); },
                 fixed ? std::optional<int64_t>(c.batch_size) : std::nullopt);
  return options;
}

// Calls `body` with the loader of the case, before it is sharded.
template <class Body>
void with_loader(const LoaderCase& c, Body body) {
  const LoaderOptions options = options_of(c);
  const auto numbers = std::views::iota(int64_t{0}, c.n);
  switch (c.source) {
    case Source::kDataset:
      return body(data_loader(Integers{c.n}, options));
    case Source::kStream:
      return body(data_loader(stream(numbers), options));
    case Source::kEndlessStream:
      return body(data_loader(stream([numbers](int64_t) { return numbers; }), options));
  }
}

struct SeenBatch {
  std::vector<int64_t> samples;
  BatchInfo info;
  bool operator==(const SeenBatch& other) const {
    return samples == other.samples && info.epoch == other.info.epoch &&
           info.index == other.info.index && info.is_last == other.info.is_last &&
           info.size == other.info.size && info.valid == other.info.valid;
  }
};
inline std::ostream& operator<<(std::ostream& out, const SeenBatch& batch) {
  out << "{" << batch.info.index << " of epoch " << batch.info.epoch << ", valid "
      << batch.info.valid << (batch.info.is_last ? ", last:" : ":");
  for (const int64_t sample : batch.samples) out << ' ' << sample;
  return out << "}";
}
using Seen = std::vector<SeenBatch>;

template <class Batch>
SeenBatch seen(const Batch& batch) {
  const at::Tensor data = batch.data.contiguous();
  return {{data.template data_ptr<int64_t>(), data.template data_ptr<int64_t>() + data.numel()},
          batch.info()};
}

// One pass, or its first `most` batches.
template <class Loader>
Seen read_pass(const Loader& loader, size_t most = SIZE_MAX) {
  Seen batches;
  if (most == 0) return batches;
  for (const auto& batch : loader) {
    batches.push_back(seen(batch));
    if (batches.size() == most) break;
  }
  return batches;
}

// The real samples, in order.
inline std::vector<int64_t> real_samples(const Seen& batches) {
  std::vector<int64_t> real;
  for (const SeenBatch& batch : batches) {
    real.insert(real.end(), batch.samples.begin(), batch.samples.begin() + batch.info.valid);
  }
  return real;
}

inline std::vector<int64_t> sorted(std::vector<int64_t> samples) {
  std::ranges::sort(samples);
  return samples;
}

inline std::vector<int64_t> integers_below(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Runs `check(LoaderCase&)` for the cases first .. first + count - 1 until one fails.
template <class Check>
void for_each_case(uint64_t first, uint64_t count, Check check) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    LoaderCase c(seed);
    SCOPED_TRACE(c.text());
    check(c);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace accelerate::test
