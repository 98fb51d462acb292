#include "residency/touch/group_gatherer.h"

#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "comm/groups/activity.h"
#include "comm/groups/communicator_impl.h"

namespace accelerate::residency {
namespace {

constexpr int64_t kAllCompared = 64;  // gathers: a training step or two
constexpr int64_t kComparedEach = 8;
constexpr size_t kTold = 16;  // gathers: differences are no older when they are found
constexpr uint64_t kOrderFactor = 1099511628211U;  // FNV

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What a rank gathered instead of what the other did.
struct UnlikeGathers {
  std::string here{};
  std::string there{};
};

// Units by the number of their gather, the latest ones.
std::map<int64_t, std::string> gathers_of(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  std::map<int64_t, std::string> gathers;
  if (lines.empty()) return gathers;
  int64_t number = std::stoll(lines[0]) - static_cast<int64_t>(lines.size()) + 1;
  for (size_t i = 1; i < lines.size(); ++i) gathers[++number] = lines[i];
  return gathers;
}

// `here` and `there` are what ranks leave in the store.
UnlikeGathers first_difference(const std::string& here, const std::string& there) {
  const auto own = gathers_of(here);
  const auto other = gathers_of(there);
  for (const auto& [number, unit] : own) {
    const auto same = other.find(number);
    if (same != other.end() && same->second != unit) {
      return {.here = '\'' + unit + '\'', .there = '\'' + same->second + '\''};
    }
  }
  const auto last = [](const std::map<int64_t, std::string>& gathers) {
    return gathers.empty() ? std::string("nothing")
                           : '\'' + gathers.rbegin()->second + "' after " +
                                 std::to_string(gathers.rbegin()->first - 1) + " others";
  };
  return {.here = last(own), .there = last(other)};
}

}  // namespace

std::function<void()> GroupGatherer::begin(const GatherCall& call) {
  ++gathers_;
  digest_ = (digest_ ^ (call.unit + 1)) * kOrderFactor;
  latest_.push_back(call.name);
  if (latest_.size() > kTold) latest_.pop_front();
  if (gathers_ <= kAllCompared || gathers_ % kComparedEach == 0) {
    compare("gather/" + std::to_string(gathers_), "a parameter is touched");
  }
  const comm::Activity activity(*ranks_, "gathering '" + call.name + "'");
  at::Tensor whole = call.whole;
  auto work = std::make_shared<Work>(ranks_->all_gather_into_async(whole, call.shard));
  return [work] { work->wait(); };
}

void GroupGatherer::broadcast(at::Tensor whole, int rank) {
  const comm::Activity activity(*all_, "full_parameters");
  all_->broadcast(whole, rank);
}

void GroupGatherer::compare_order(const char* where) {
  compare("order/" + std::to_string(++comparisons_), where);
}

void GroupGatherer::compare(const std::string& key, const char* where) {
  if (ranks_->world_size() == 1) return;
  std::string own = std::to_string(gathers_) + ' ' + std::to_string(digest_);
  for (const std::string& name : latest_) own += '\n' + name;
  Communicator::Impl& group = comm::impl_of(*ranks_);
  const auto first = group.first_value("model/" + std::to_string(model_) + '/' + key, own);
  if (!first || first->value == own) return;
  const UnlikeGathers units = first_difference(own, first->value);
  group.refuse_on_all(
      {.what = "the ranks gather parameters in different orders: rank " +
               std::to_string(ranks_->global_rank()) + " gathers " + units.here + ", rank " +
               std::to_string(first->rank) + " gathers " + units.there,
       .where = where,
       .hint = "all ranks must use the parameters of a sharded model in the same order: take the "
               "same branches on all of them"});
}

}  // namespace accelerate::residency
