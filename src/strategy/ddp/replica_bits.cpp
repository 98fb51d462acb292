#include "strategy/ddp/replica_bits.h"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/errors.h"
#include "comm/agreement.h"
#include "comm/groups/activity.h"

namespace accelerate {
namespace {

// Undefined where there is nothing to be read. Eight bytes at a time where memory allows it, which
// is several times as fast as to widen each element.
at::Tensor sum_of_words(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach();
  const bool is_plain = values.layout() == at::kStrided && !values.is_complex() &&
                        !values.is_meta() && values.is_contiguous();
  const int64_t per_word = is_plain ? 8 / values.element_size() : 1;
  if (per_word < 2 || values.storage_offset() % per_word != 0 || values.numel() < per_word) {
    return sum_of_bits(values);
  }
  const at::Tensor flat = values.view({-1});
  const int64_t whole = flat.numel() / per_word * per_word;
  const at::Tensor sum = sum_of_bits(flat.narrow(0, 0, whole).view(at::kLong));
  if (whole == flat.numel()) return sum;
  return sum + sum_of_bits(flat.narrow(0, whole, flat.numel() - whole));
}

struct BitSums {
  std::vector<std::string> names;  // of values that can be read
  std::string bytes;               // of the sum of each
};

BitSums bit_sums_of(const NamedValues& values) {
  const at::NoGradGuard no_grad;
  BitSums result;
  std::vector<at::Tensor> sums;  // on the first one's device, so that it is waited for once
  for (const auto& [name, tensor] : values) {
    const at::Tensor sum = sum_of_words(tensor);
    if (!sum.defined()) continue;
    result.names.push_back(name);
    sums.push_back(sums.empty() ? sum : sum.to(sums.front().device()));
  }
  if (sums.empty()) return result;
  const at::Tensor all = at::stack(sums).cpu();
  result.bytes.assign(static_cast<const char*>(all.const_data_ptr()), all.nbytes());
  return result;
}

// Ranks with the same bits, in the order of their first ones.
std::vector<std::vector<size_t>> equal_ranks(const std::vector<std::string>& sums) {
  std::vector<std::vector<size_t>> groups;
  for (size_t rank = 0; rank < sums.size(); ++rank) {
    const auto group = std::ranges::find_if(
        groups, [&](const std::vector<size_t>& each) { return sums[each[0]] == sums[rank]; });
    if (group != groups.end()) {
      group->push_back(rank);
    } else {
      groups.push_back({rank});
    }
  }
  return groups;
}

std::string first_unequal(const std::vector<std::string>& names, std::string_view one,
                          std::string_view other) {
  if (one.size() == other.size()) {
    const auto place =
        static_cast<size_t>(std::ranges::mismatch(one, other).in1 - one.begin()) / sizeof(int64_t);
    if (place < names.size()) return names[place];
  }
  return "the state";
}

// What differs, and on which of the groups, of which there are several.
std::string odd_one_out(const BitSums& own, const std::vector<std::string>& sums,
                        const std::vector<std::vector<size_t>>& groups) {
  const auto largest = std::ranges::max_element(
      groups, {}, [](const std::vector<size_t>& group) { return group.size(); });
  const bool is_majority = 2 * largest->size() > sums.size();
  const auto odd = largest == groups.begin() ? groups.begin() + 1 : groups.begin();
  const size_t right = is_majority ? (*largest)[0] : groups[0][0];
  const size_t wrong = is_majority ? (*odd)[0] : groups[1][0];
  const std::string what = first_unequal(own.names, sums[right], sums[wrong]);
  if (!is_majority) {
    return difference_text(what, static_cast<int>(right), static_cast<int>(wrong));
  }
  return what + " on rank " + std::to_string(wrong) + " differs from that of " +
         std::to_string(largest->size()) + " other ranks";
}

}  // namespace

void require_equal_bits(Communicator& ranks, const std::function<NamedValues()>& values,
                        int64_t updates, const char* where) {
  const comm::Activity activity(ranks, "comparison of replicas");
  BitSums own;
  // A rank may have no memory for its sums.
  const std::vector<std::string> sums = comm::gather_together(ranks, [&] {
    own = bit_sums_of(values());
    return own.bytes;
  });
  const auto groups = equal_ranks(sums);
  if (groups.size() < 2) return;
  throw UsageError(
      {.what = "the replicas came to differ in the last " + std::to_string(updates) +
               " updates: " + odd_one_out(own, sums, groups),
       .where = where,
       .hint = "go on from the last checkpoint on all ranks; if the program changes nothing on one "
               "rank alone, suspect the memory or the device of the rank that differs"});
}

}  // namespace accelerate
