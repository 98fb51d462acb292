#include "data/data_agreement.h"

#include <ATen/core/Generator.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "base/fnv1a.h"
#include "device/device_backend.h"
#include "device/generators.h"

namespace accelerate {

namespace detail {

uint64_t digest_of(const PackedValue& value) {
  Fnv1a digest;
  digest.add(value.header.data(), value.header.size());
  if (value.bytes.defined()) digest.add(value.bytes.data_ptr(), value.bytes.nbytes());
  return digest.value();
}

}  // namespace detail

namespace {

constexpr int64_t kComparedSamples = 8;
constexpr int kReadingsOfADifference = 16;

// While it lives, libtorch's generators give the same numbers on all ranks, so that data which
// depend on nothing else are equal; then they are as before.
class EqualGenerators {
 public:
  explicit EqualGenerators(c10::Device device) {
    keep_all_of(c10::kCPU);
    // Of a program that stays on the CPU libtorch may have been told that there are no GPUs.
    if (!device.is_cpu()) keep_all_of(device.type());
  }
  EqualGenerators(const EqualGenerators&) = delete;
  EqualGenerators& operator=(const EqualGenerators&) = delete;
  ~EqualGenerators() {
    for (const auto& [generator, state] : kept_) device::set_generator_state(generator, state);
  }

 private:
  void keep_all_of(c10::DeviceType type) {
    for (const at::Generator& generator : device::device_backend(type).generators()) {
      kept_.emplace_back(generator, device::generator_state(generator));
      device::seed_generator(generator, 0);
    }
  }

  std::vector<std::pair<at::Generator, at::Tensor>> kept_;
};

// From the first to the last, at even distances.
std::vector<int64_t> compared_samples(int64_t size) {
  const int64_t count = std::min(size, kComparedSamples);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < count; ++i)
    samples.push_back(count == 1 ? 0 : i * (size - 1) / (count - 1));
  return samples;
}

// What a rank found: digests of the samples, or the reason why there are none.
struct SampleFinding {
  std::vector<uint64_t> digests{};
  std::string reason{};

  std::string bytes() const {
    std::string text(digests.size() * sizeof(uint64_t), '\0');
    if (!digests.empty()) std::memcpy(text.data(), digests.data(), text.size());
    return reason.empty() ? "=" + text : "?" + reason;
  }
  static SampleFinding of_bytes(const std::string& bytes) {
    if (bytes.at(0) == '?') return {.reason = bytes.substr(1)};
    SampleFinding finding{.digests = std::vector<uint64_t>(bytes.size() / sizeof(uint64_t))};
    if (!finding.digests.empty()) {
      std::memcpy(finding.digests.data(), bytes.data() + 1,
                  finding.digests.size() * sizeof(uint64_t));
    }
    return finding;
  }
};

SampleFinding read_samples(const detail::SampleDigest& digest, const std::vector<int64_t>& samples,
                           int readings) {
  if (!digest) return {.reason = "their samples are of a type that cannot be compared"};
  SampleFinding finding;
  for (const int64_t sample : samples) {
    const std::string name = "sample " + std::to_string(sample);
    try {
      const uint64_t first = digest(static_cast<size_t>(sample));
      for (int again = 1; again < readings; ++again) {
        if (digest(static_cast<size_t>(sample)) == first) continue;
        return {.reason = name + " differs each time it is read"};
      }
      finding.digests.push_back(first);
    } catch (const std::exception& error) {  // the loop will meet it too, and say more
      return {.reason = name + " cannot be read: " + error.what()};
    } catch (...) {
      return {.reason = name + " cannot be read"};
    }
  }
  return finding;
}

// Of all ranks; nothing, after a line in the log, if one of them cannot tell.
std::optional<std::vector<SampleFinding>> exchange(const SampleFinding& own, Communicator& ranks) {
  std::vector<SampleFinding> all;
  for (const std::string& bytes : ranks.all_gather_bytes(own.bytes())) {
    all.push_back(SampleFinding::of_bytes(bytes));
  }
  const auto undecided = std::ranges::find_if(
      all, [](const SampleFinding& finding) { return !finding.reason.empty(); });
  if (undecided == all.end()) return all;
  if (ranks.rank() == 0) {
    log(LogLevel::kInfo,
        "whether all ranks have the same data was not checked: " + undecided->reason + " (rank " +
            std::to_string(undecided - all.begin()) + ")");
  }
  return std::nullopt;
}

struct Difference {
  size_t sample = 0;  // its place among those that were compared
  size_t rank = 0;
};

std::optional<Difference> difference_in(const std::vector<SampleFinding>& all) {
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const auto [own, first] = std::ranges::mismatch(all[rank].digests, all[0].digests);
    if (own == all[rank].digests.end()) continue;
    return Difference{.sample = static_cast<size_t>(own - all[rank].digests.begin()), .rank = rank};
  }
  return std::nullopt;
}

}  // namespace

void require_same_data(const detail::SampleDigest& digest, int64_t size, c10::Device device,
                       Communicator& ranks) {
  const std::vector<int64_t> samples = compared_samples(size);
  const auto find = [&](const std::vector<int64_t>& which, int readings) {
    const EqualGenerators generators(device);
    return read_samples(digest, which, readings);
  };
  const auto all = exchange(find(samples, 2), ranks);
  if (!all) return;
  const auto difference = difference_in(*all);
  if (!difference) return;
  // A change that is made now and then only is seen when a sample is read more often.
  const int64_t sample = samples[difference->sample];
  const auto again = exchange(find({sample}, kReadingsOfADifference), ranks);
  if (!again || !difference_in(*again)) return;
  throw UsageError(
      {.what = "the ranks have different data: sample " + std::to_string(sample) + " of rank " +
               std::to_string(difference->rank) + " is not that of rank 0",
       .where = "prepare",
       .hint = "shuffle and draw with a seed that all ranks share, or make the data on rank 0 and "
               "broadcast them; .data_loader = {.compare_samples = false} leaves this check out"});
}

}  // namespace accelerate
