#include "comm/exchange/value_agreement.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "base/fnv1a.h"
#include "comm/agreement.h"
#include "comm/groups/activity.h"
#include "comm/rendezvous/rendezvous.h"

namespace accelerate::comm {
namespace {

using detail::OperandNode;
using detail::Operands;

int64_t hash_of(std::string_view text) { return static_cast<int64_t>(fnv1a(text)); }

void put(std::string& message, int64_t number) {
  message.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void put(std::string& message, const std::string& text) {
  put(message, static_cast<int64_t>(text.size()));
  message += text;
}

// Takes apart what another rank of this program wrote.
class Reader {
 public:
  explicit Reader(std::string_view message) : message_(message) {}

  int64_t number() {
    int64_t number = 0;
    std::memcpy(&number, take(sizeof(number)).data(), sizeof(number));
    return number;
  }
  std::string text() { return std::string(take(static_cast<size_t>(number()))); }

 private:
  std::string_view take(size_t size) {
    if (size > message_.size()) {
      throw CommError({.what = "the description of a rank's value ends too early",
                       .where = "an operation on nested values",
                       .hint = "run the same program on all ranks"});
    }
    const std::string_view taken = message_.substr(0, size);
    message_.remove_prefix(size);
    return taken;
  }

  std::string_view message_;
};

// What one rank is about to do.
struct Intent {
  std::string name{};
  std::vector<OperandNode> nodes{};
};

// Throws what is wrong with this rank's own.
std::string describe_operands(const Operands& operands) {
  if (!operands.problem.empty()) {
    throw UsageError({.what = operands.problem, .where = operands.where, .hint = operands.hint});
  }
  std::string message;
  put(message, operands.name);
  put(message, static_cast<int64_t>(operands.nodes.size()));
  for (const OperandNode& node : operands.nodes) {
    put(message, node.path);
    put(message, node.type);
    put(message, node.is_tensor ? static_cast<int64_t>(node.sizes.size()) : -1);
    for (const int64_t size : node.sizes) put(message, size);
  }
  return message;
}

Intent intent_of(std::string_view message) {
  Intent intent;
  Reader reader(message);
  intent.name = reader.text();
  const int64_t count = reader.number();
  for (int64_t i = 0; i < count; ++i) {
    OperandNode& node = intent.nodes.emplace_back();
    node.path = reader.text();
    node.type = reader.text();
    const int64_t dims = reader.number();
    node.is_tensor = dims >= 0;
    for (int64_t dim = 0; dim < dims; ++dim) node.sizes.push_back(reader.number());
  }
  return intent;
}

bool fits(const OperandNode& a, const OperandNode& b, Fit fit) {
  if (a.path != b.path || a.type != b.type || a.is_tensor != b.is_tensor ||
      a.sizes.size() != b.sizes.size()) {
    return false;
  }
  if (fit == Fit::kSizes || a.sizes.empty()) return true;
  const int64_t first = fit == Fit::kRows ? 1 : 0;
  return std::equal(a.sizes.begin() + first, a.sizes.end(), b.sizes.begin() + first);
}

// Such as "Float [4, 10] on cpu".
std::string node_text(const OperandNode& node) {
  if (!node.is_tensor) return node.type;
  const size_t blank = std::min(node.type.find(' '), node.type.size());
  std::string text = node.type.substr(0, blank) + " [";
  for (size_t dim = 0; dim < node.sizes.size(); ++dim) {
    if (dim > 0) text += ", ";
    text += std::to_string(node.sizes[dim]);
  }
  return text + ']' + node.type.substr(blank);
}

// Ranks of which the same can be said.
struct Camp {
  std::string text;
  std::vector<int> ranks;
};

// The largest camp first, then by rank.
std::vector<Camp> camps_of(const std::vector<std::string>& texts) {
  std::vector<Camp> camps;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    auto camp = std::find_if(camps.begin(), camps.end(),
                             [&](const Camp& other) { return other.text == texts[rank]; });
    if (camp == camps.end()) camp = camps.insert(camp, Camp{.text = texts[rank], .ranks = {}});
    camp->ranks.push_back(static_cast<int>(rank));
  }
  std::stable_sort(camps.begin(), camps.end(),
                   [](const Camp& a, const Camp& b) { return a.ranks.size() > b.ranks.size(); });
  return camps;
}

// "ranks 0 and 2 have Float [3]; rank 1 has Float [4]"
std::string list_camps(const std::vector<Camp>& camps, const char* one, const char* many) {
  std::string text;
  for (const Camp& camp : camps) {
    if (!text.empty()) text += "; ";
    text += list_ranks(camp.ranks) + ' ' + (camp.ranks.size() == 1 ? one : many) + ' ' + camp.text;
  }
  return text;
}

void require_same_operation(const std::vector<Intent>& intents, const std::string& where) {
  std::vector<std::string> names;
  for (const Intent& intent : intents) names.push_back(intent.name);
  const std::vector<Camp> camps = camps_of(names);
  if (camps.size() == 1) return;
  throw UsageError(
      {.what = "the ranks call different operations: " + list_camps(camps, "calls", "call"),
       .where = where,
       .hint = "all ranks must make the same calls in the same order"});
}

const char* hint_for(Fit fit) {
  switch (fit) {
    case Fit::kRows:
      return "only the number of rows may differ between ranks: see pad_across_processes";
    case Fit::kSizes:
      return "give all ranks the same structure, dtypes and numbers of dimensions";
    case Fit::kExact:
      break;
  }
  return "give all ranks the same structure, dtypes and shapes";
}

[[noreturn]] void refuse_difference(const std::vector<Intent>& intents, size_t place, Fit fit,
                                    const std::string& where) {
  const auto node_of = [&](size_t rank) {
    const auto& nodes = intents[rank].nodes;
    return place < nodes.size() ? &nodes[place] : nullptr;
  };
  std::string path;
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < intents.size(); ++rank) {
    const OperandNode* node = node_of(rank);
    if (node != nullptr && path.empty()) path = node->path;
    texts.push_back(node == nullptr ? "nothing there" : node_text(*node));
  }
  const std::vector<Camp> camps = camps_of(texts);
  const bool have_majority = 2 * camps.front().ranks.size() > intents.size();
  std::vector<int> odd;
  for (size_t camp = 1; camp < camps.size(); ++camp) {
    odd.insert(odd.end(), camps[camp].ranks.begin(), camps[camp].ranks.end());
  }
  std::sort(odd.begin(), odd.end());
  throw UsageError({.what = place_name(path) +
                            (have_majority ? " of " + list_ranks(odd) + " differs from the others: "
                                           : " differs between ranks: ") +
                            list_camps(camps, "has", "have"),
                    .where = where,
                    .hint = hint_for(fit)});
}

void require_fit(const std::vector<Intent>& intents, Fit fit, const std::string& where) {
  size_t places = 0;
  for (const Intent& intent : intents) places = std::max(places, intent.nodes.size());
  for (size_t place = 0; place < places; ++place) {
    for (const Intent& intent : intents) {
      const auto& first = intents.front().nodes;
      if (place >= first.size() || place >= intent.nodes.size() ||
          !fits(first[place], intent.nodes[place], fit)) {
        refuse_difference(intents, place, fit, where);
      }
    }
  }
}

// What all ranks say, with zeros behind it.
std::vector<std::string> exchange(Communicator& ranks, const std::string& message,
                                  int64_t longest) {
  at::Tensor own = at::zeros({longest}, at::kByte);
  std::memcpy(own.data_ptr(), message.data(), message.size());
  std::vector<std::string> messages;
  for (const at::Tensor& other : ranks.all_gather(own)) {
    messages.emplace_back(static_cast<const char*>(other.data_ptr()),
                          static_cast<size_t>(other.numel()));
  }
  return messages;
}

AgreedSizes compare(Communicator& ranks, const Operands& operands, Fit fit) {
  const std::string& where = operands.where;
  if (ranks.world_size() == 1 && operands.problem.empty()) return AgreedSizes(operands);
  const RankOutcome own = attempt([&] { return describe_operands(operands); });
  const TogetherOptions told{.retell = told_at(where)};
  if (ranks.world_size() == 1) require_no_failure(ranks, {own.message}, own, told);
  const std::string& message = own.message;
  const at::Tensor summary =
      at::tensor({hash_of(message), static_cast<int64_t>(message.size())}, at::kLong);
  int64_t longest = 0;
  bool equal = operands.problem.empty();
  for (const at::Tensor& other : ranks.all_gather(summary)) {
    equal = equal && at::equal(other, summary);
    longest = std::max(longest, other[1].item<int64_t>());
  }
  if (equal) return AgreedSizes(operands);

  const std::vector<std::string> messages = exchange(ranks, message, longest);
  require_no_failure(ranks, messages, own, told);
  std::vector<Intent> intents;
  for (const std::string& other : messages) intents.push_back(intent_of(result_in(other)));
  require_same_operation(intents, where);
  require_fit(intents, fit, where);
  std::vector<std::vector<OperandNode>> nodes;
  nodes.reserve(intents.size());
  for (Intent& intent : intents) nodes.push_back(std::move(intent.nodes));
  return AgreedSizes(operands, std::move(nodes));
}

}  // namespace

AgreedSizes agree(Communicator& ranks, const Operands& operands, Fit fit) {
  return detail::stamped(ranks, [&] {
    const Activity activity(ranks, operands.where);
    return compare(ranks, operands, fit);
  });
}

}  // namespace accelerate::comm
