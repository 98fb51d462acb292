#include "strategy/ddp/replica_digest.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/view_as_real.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "comm/groups/communicator_impl.h"

namespace accelerate {
namespace {

// Rounding differs by a unit in the last place and adds up over many updates; what trains apart
// moves by far more.
double tolerance_of(at::ScalarType type) {
  switch (c10::elementSize(type)) {
    case 8:
      return 1e-9;
    case 4:
      return 1e-6;
    default:
      return 1e-3;
  }
}

at::ScalarType integers_like(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 8:
      return at::kLong;
    case 4:
      return at::kInt;
    case 2:
      return at::kShort;
    default:
      return at::kChar;
  }
}

// As numbers that are real and in memory; undefined where there are none.
at::Tensor readable(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach();
  if (values.layout() != at::kStrided || values.is_meta() || values.numel() == 0) return {};
  return values.is_complex() ? at::view_as_real(values.resolve_conj()) : values;
}

}  // namespace

at::Tensor sum_of_bits(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = readable(tensor);
  if (!values.defined()) return {};
  return values.contiguous().view(integers_like(values)).sum(at::kLong);
}

ReplicaDigest ReplicaDigest::of(const torch::nn::Module& module) {
  NamedValues parameters;
  for (const auto& item : module.named_parameters()) {
    parameters.emplace_back(item.key(), item.value());
  }
  return of(parameters);
}

ReplicaDigest ReplicaDigest::of(const NamedValues& all_values) {
  const at::NoGradGuard no_grad;
  ReplicaDigest digest;
  std::vector<at::Tensor> bits, sums;  // on the device, so that it is waited for once
  for (const auto& [name, tensor] : all_values) {
    const at::Tensor values = readable(tensor);
    if (!values.defined()) continue;
    bits.push_back(sum_of_bits(values));
    sums.push_back(at::stack(
        {values.sum(at::kDouble),
         at::linalg_vector_norm(values, 2, at::OptionalIntArrayRef{}, false, at::kDouble)}));
    digest.names_.push_back(name);
    digest.numbers_.push_back({.scale = std::sqrt(static_cast<double>(values.numel())),
                               .tolerance = tolerance_of(values.scalar_type())});
  }
  if (bits.empty()) return digest;
  const at::Device device = bits[0].device();
  for (size_t i = 1; i < bits.size(); ++i) {
    bits[i] = bits[i].to(device);
    sums[i] = sums[i].to(device);
  }
  const at::Tensor all_bits = at::stack(bits).cpu();
  const at::Tensor all_sums = at::stack(sums).cpu();
  const auto bits_of = all_bits.accessor<int64_t, 1>();
  const auto sums_of = all_sums.accessor<double, 2>();
  for (int64_t i = 0; i < all_bits.numel(); ++i) {
    Numbers& numbers = digest.numbers_[static_cast<size_t>(i)];
    numbers.bits = bits_of[i];
    numbers.sum = sums_of[i][0];
    numbers.length = sums_of[i][1];
    numbers.scale *= numbers.length;
  }
  return digest;
}

std::string ReplicaDigest::encode() const {
  return {reinterpret_cast<const char*>(numbers_.data()), numbers_.size() * sizeof(Numbers)};
}

ReplicaDigest ReplicaDigest::decode(const std::string& bytes) {
  if (bytes.size() % sizeof(Numbers) != 0) {
    throw CommError({.what = "the digest of the parameters of another rank is cut off"});
  }
  ReplicaDigest digest;
  digest.numbers_.resize(bytes.size() / sizeof(Numbers));
  if (!bytes.empty()) std::memcpy(digest.numbers_.data(), bytes.data(), bytes.size());
  return digest;
}

std::optional<ReplicaDigest::Difference> ReplicaDigest::compare(const ReplicaDigest& other) const {
  if (numbers_.size() != other.numbers_.size()) {
    return Difference{.parameter = names_.empty() ? "" : names_[0]};
  }
  std::optional<Difference> found;
  double most = -1;
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const Numbers& mine = numbers_[i];
    const Numbers& theirs = other.numbers_[i];
    if (mine.bits == theirs.bits) continue;
    const double length = std::max({mine.length, theirs.length, 1e-300});
    const double scale = std::max({mine.scale, theirs.scale, 1e-300});
    double relative = std::max(std::abs(mine.length - theirs.length) / length,
                               std::abs(mine.sum - theirs.sum) / scale);
    // Also of what is not a number.
    const bool is_rounding = relative <= mine.tolerance;
    if (std::isnan(relative)) relative = HUGE_VAL;
    relative /= mine.tolerance;
    if (relative <= most) continue;
    most = relative;
    found = Difference{.parameter = i < names_.size() ? names_[i] : "", .is_rounding = is_rounding};
  }
  return found;
}

std::optional<std::pair<ReplicaDigest::Difference, int>> ReplicaDigest::compare_with_first(
    Communicator& ranks, const std::string& key) const {
  const auto first = comm::impl_of(ranks).first_value(key, encode());
  if (!first) return std::nullopt;
  auto difference = compare(decode(first->value));
  if (!difference) return std::nullopt;
  return std::pair(*std::move(difference), first->rank);
}

std::string difference_text(const std::string& what, int one, int other) {
  return what + " differs between rank " + std::to_string(one) + " and rank " +
         std::to_string(other);
}

std::string difference_text(const ReplicaDigest::Difference& difference, size_t model, int one,
                            int other) {
  return difference_text("'" + difference.parameter + "' of model " + std::to_string(model), one,
                         other);
}

ErrorInfo difference_error(const std::string& text, const char* where) {
  return {.what = "the ranks hold different parameters: " + text,
          .where = where,
          .hint =
              "train with accelerator.backward(loss) and the prepared optimizer's step(), and "
              "change parameters by hand on all ranks alike; {.ddp = {.check_replicas = false}} "
              "switches this check off"};
}

void warn_of_rounding(const std::string& text) {
  log(LogLevel::kWarning, "the ranks hold slightly different parameters: " + text +
                              ", as on different hardware; gradients are still averaged");
}

void require_same_replica(Communicator& ranks, const torch::nn::Module& module, size_t model,
                          bool compares, const char* where) {
  const ReplicaDigest own = ReplicaDigest::of(module);
  const std::vector<std::string> all = ranks.all_gather_bytes(compares ? own.encode() : "");
  std::optional<size_t> first;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    if (!first) first = rank;
    // The names are those of this rank; all have the same.
    ReplicaDigest expected = ReplicaDigest::decode(all[*first]);
    expected.take_names(own);
    const auto difference = expected.compare(ReplicaDigest::decode(all[rank]));
    if (!difference) continue;
    const std::string text =
        difference_text(*difference, model, static_cast<int>(*first), static_cast<int>(rank));
    if (!difference->is_rounding) throw UsageError(difference_error(text, where));
    if (ranks.rank() == 0) warn_of_rounding(text);
  }
}

}  // namespace accelerate
