#include "accelerate/dataset_ops.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <numeric>
#include <string>

#include "accelerate/errors.h"
#include "data/row_copy.h"

namespace accelerate {
namespace detail {

void check_index(size_t index, size_t size) {
  if (index < size) return;
  throw UsageError({.what = "sample " + std::to_string(index) + " was asked of a dataset of " +
                            std::to_string(size)});
}

}  // namespace detail

namespace dataset_detail {
namespace {

// As many samples for each part as torch.utils.data.random_split gives.
std::vector<size_t> sizes_of_fractions(size_t size, const std::vector<SplitPart>& parts) {
  double sum = 0;
  for (const SplitPart& part : parts) {
    if (!(part.value() >= 0 && part.value() <= 1)) {
      throw UsageError({.what = "random_split: the fraction " + std::to_string(part.value()) +
                                " is not between 0 and 1",
                        .hint = "give numbers of samples as integers"});
    }
    sum += part.value();
  }
  if (std::abs(sum - 1) > 1e-9) {
    throw UsageError(
        {.what = "random_split: the fractions add up to " + std::to_string(sum) + ", not to 1"});
  }
  std::vector<size_t> sizes;
  size_t dealt = 0;
  for (const SplitPart& part : parts) {
    const auto floor = static_cast<size_t>(std::floor(static_cast<double>(size) * part.value()));
    sizes.push_back(std::min(floor, size - dealt));
    dealt += sizes.back();
  }
  for (size_t i = 0; dealt < size; ++i, ++dealt) ++sizes[i % sizes.size()];
  return sizes;
}

std::vector<size_t> sizes_of_counts(size_t size, const std::vector<SplitPart>& parts) {
  std::vector<size_t> sizes;
  double sum = 0;
  for (const SplitPart& part : parts) {
    if (part.value() < 0) {
      throw UsageError({.what = "random_split: a part cannot have a negative number of samples"});
    }
    sum += part.value();
    sizes.push_back(static_cast<size_t>(part.value()));
  }
  if (sum != static_cast<double>(size)) {
    throw UsageError({.what = "random_split: the parts add up to " +
                              std::to_string(static_cast<size_t>(sum)) +
                              " samples, the dataset has " + std::to_string(size)});
  }
  return sizes;
}

}  // namespace

size_t known_size(std::optional<size_t> size) {
  if (size) return *size;
  throw UsageError({.what = "the dataset does not know its size",
                    .hint = "return the number of samples from size(), or make a stream of it: see "
                            "accelerate::stream()"});
}

void check_returned(size_t returned, size_t asked) {
  if (returned == asked) return;
  throw DataError({.what = "the datasets were asked for a batch of " + std::to_string(asked) +
                           " samples and returned one of " + std::to_string(returned),
                   .where = "get_batch() inside concat()",
                   .hint = "return one sample for each index"});
}

void check_dataset(const void* dataset) {
  if (dataset == nullptr) throw UsageError({.what = "a dataset is needed, got a null pointer"});
}

std::vector<std::vector<size_t>> split_indices(size_t size, const std::vector<SplitPart>& parts,
                                               uint64_t seed) {
  if (parts.empty()) throw UsageError({.what = "random_split needs at least one part"});
  for (const SplitPart& part : parts) {
    if (part.is_fraction() == parts.front().is_fraction()) continue;
    throw UsageError({.what = "random_split: numbers of samples and fractions are mixed",
                      .hint = "give integers alone, or fractions with a point (1.0) alone"});
  }
  const std::vector<size_t> sizes =
      parts.front().is_fraction() ? sizes_of_fractions(size, parts) : sizes_of_counts(size, parts);

  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor order =
      at::randperm(static_cast<int64_t>(size), generator, at::TensorOptions().dtype(at::kLong));
  const int64_t* next = order.data_ptr<int64_t>();
  std::vector<std::vector<size_t>> indices;
  for (const size_t count : sizes) {
    indices.emplace_back(next, next + count);
    next += count;
  }
  return indices;
}

at::Generator filter_generator(size_t index) {
  return at::make_generator<at::CPUGeneratorImpl>(index);
}

std::vector<size_t> first_indices(const std::vector<size_t>& sizes) {
  if (sizes.empty()) throw UsageError({.what = "concat needs at least one dataset"});
  std::vector<size_t> firsts(sizes.size() + 1, 0);
  std::partial_sum(sizes.begin(), sizes.end(), firsts.begin() + 1);
  return firsts;
}

at::Tensor merge_rows(const std::vector<at::Tensor>& parts, const std::vector<size_t>& positions) {
  size_t defined = 0;
  for (const at::Tensor& part : parts) defined += part.defined();
  if (defined == 0) return {};
  if (defined != parts.size()) {
    throw DataError({.what = "only some of the concatenated datasets fill all fields of a batch",
                     .where = "get_batch() inside concat()"});
  }
  const at::Tensor rows = at::cat(parts);
  check_returned(static_cast<size_t>(rows.size(0)), positions.size());
  std::vector<size_t> sources(positions.size());
  bool in_order = true;
  for (size_t k = 0; k < positions.size(); ++k) {
    sources[positions[k]] = k;
    in_order = in_order && positions[k] == k;
  }
  return in_order ? rows : gather_rows(rows, sources);
}

}  // namespace dataset_detail
}  // namespace accelerate
