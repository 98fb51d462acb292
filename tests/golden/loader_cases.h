// What the tests of recorded loader behaviour share.
#pragma once

#include <accelerate/data_loader.h>
#include <accelerate/dataset.h>
#include <torch/torch.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::test {

using Batches = std::vector<std::vector<int64_t>>;

// Whether the entry is tagged as one that shows the bug `id` of the reference.
inline bool shows_bug(const nlohmann::json& entry, std::string_view id) {
  const auto tag = entry.find("upstream_bug");
  if (tag == entry.end()) return false;
  if (tag->is_string()) return tag->get_ref<const std::string&>() == id;
  return tag->is_array() && std::ranges::find(*tag, nlohmann::json(id)) != tag->end();
}

// Samples 0..n-1, read by index.
inline TensorDataset integers_below(int64_t n) {
  return TensorDataset(torch::arange(n), torch::arange(n));
}

// The same as a stream that knows its length, and as one that does not.
inline auto counted_stream(int64_t n) { return stream(std::views::iota(int64_t{0}, n)); }
inline auto uncounted_stream(int64_t n) {
  return stream([n](int64_t) { return std::views::iota(int64_t{0}, n); });
}

inline std::vector<int64_t> integers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

// One pass over a loader of integers.
struct SeenPass {
  Batches batches;
  std::vector<int64_t> valid;
  std::vector<bool> is_last;
};
template <class Loader>
SeenPass see_pass(const Loader& loader) {
  SeenPass seen;
  for (const auto& batch : loader) {
    seen.batches.push_back(integers_of(batch.data));
    seen.valid.push_back(batch.info().valid);
    seen.is_last.push_back(batch.info().is_last);
  }
  return seen;
}

}  // namespace accelerate::test
