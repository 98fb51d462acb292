#include "strategy/ddp/uneven_join.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "accelerate/detail/stamped.h"
#include "accelerate/log.h"
#include "comm/agreement.h"
#include "comm/groups/process_group.h"

namespace accelerate::detail {

UnevenJoin::UnevenJoin(std::shared_ptr<Communicator> communicator, const JoinOptions& options,
                       std::vector<JoinMember*> members, std::vector<JoinMember*> outsiders)
    : communicator_(std::move(communicator)),
      group_(comm::process_group_of(*communicator_)),
      options_(options),
      members_(std::move(members)),
      outsiders_(std::move(outsiders)),
      plans_(members_.size() + outsiders_.size()),
      unreduced_weight_(members_.size(), 0),
      reductions_(members_.size(), 0),
      exchanged_(members_.size(), false) {
  require_same_join();
  for (size_t i = 0; i < members_.size(); ++i) members_[i]->set_join(this, i);
  for (size_t i = 0; i < outsiders_.size(); ++i) {
    outsiders_[i]->set_join(this, members_.size() + i);
  }
}

UnevenJoin::~UnevenJoin() {
  for (JoinMember* member : members_) member->set_join(nullptr, 0);
  for (JoinMember* outsider : outsiders_) outsider->set_join(nullptr, 0);
}

void UnevenJoin::run(const std::function<void()>& body) {
  body();
  while (answer_next()) {
  }
  communicator_->guard("end of join_uneven_inputs", [&] {
    require_same_replicas();
    copy_from_last_source();
  });
}

int UnevenJoin::announce_buffers(size_t index) {
  if (index >= members_.size()) {
    refuse_for_all(
        {.what = "a model exchanges its buffers inside join_uneven_inputs without being joined",
         .where = "forward",
         .hint = "name it among the joined models, or name none to join all"});
  }
  Notice own = notice(Step::kBuffers);
  own.reductions[index] = 1;
  exchange(own);
  exchanged_[index] = true;
  return source_;
}

ReductionPlan UnevenJoin::announce_backward(size_t index, const at::Tensor& loss) {
  if (!plans_[index]) {  // the first to ask in this pass
    const std::vector<ReductionPlan> plans = plan_backward(loss);
    std::copy(plans.begin(), plans.end(), plans_.begin());
  }
  return *std::exchange(plans_[index], std::nullopt);
}

std::vector<ReductionPlan> UnevenJoin::plan_backward(const at::Tensor& loss) {
  const compat::GraphNodes graph = compat::graph_of(loss);
  for (const JoinMember* outsider : outsiders_) {
    if (!outsider->would_reduce() || !outsider->is_reached_by(graph)) continue;
    refuse_for_all({.what = "the loss reaches a model inside join_uneven_inputs that is not joined",
                    .where = "backward",
                    .hint = "name it among the joined models, or name none to join all"});
  }
  std::vector<size_t> reducing;
  bool delayed = false;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!members_[i]->is_reached_by(graph)) continue;
    unreduced_weight_[i] += members_[i]->batch_weight();
    if (!members_[i]->would_reduce()) continue;
    reducing.push_back(i);
    delayed = delayed || members_[i]->must_delay();
  }
  std::vector<ReductionPlan> plans(members_.size() + outsiders_.size());
  if (reducing.empty()) return plans;

  // The buckets of two models would come in an order that only this pass knows.
  delayed = delayed || reducing.size() > 1;
  Notice own = notice(Step::kBackward);
  for (const size_t i : reducing) {
    try {
      if (delayed) members_[i]->require_all_reached_by(graph);
    } catch (const UsageError& error) {
      refuse_for_all({.what = error.message(), .where = error.where(), .hint = error.hint()});
    }
    own.reductions[i] =
        static_cast<int64_t>(delayed ? PassReduction::kDelayed : PassReduction::kOverlapped);
    own.weights[i] = options_.divide_by == JoinDivisor::kSamples ? unreduced_weight_[i] : 1;
  }
  const std::vector<Notice> all = exchange(own);
  for (const size_t i : reducing) {
    exchanged_[i] = true;
    ++reductions_[i];
    unreduced_weight_[i] = 0;
    plans[i].reduction = static_cast<PassReduction>(own.reductions[i]);
    plans[i].weight = own.weights[i];
    plans[i].divisor = options_.divide_by == JoinDivisor::kAllRanks
                           ? static_cast<int64_t>(all.size())
                           : std::accumulate(all.begin(), all.end(), int64_t{0},
                                             [&](int64_t sum, const Notice& notice) {
                                               return sum + notice.weights[i];
                                             });
  }
  return plans;
}

bool UnevenJoin::answer_next() {
  bool more = true;
  communicator_->guard("join_uneven_inputs without data", [&] {
    const std::vector<Notice> all = exchange(notice(Step::kFinished));
    const auto active = std::find_if(all.begin(), all.end(), [](const Notice& notice) {
      return notice.step != Step::kFinished;
    });
    more = active != all.end();
    if (!more) return;
    std::vector<size_t> concerned;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (active->reductions[i] != 0) concerned.push_back(i);
    }
    for (const size_t i : concerned) {
      exchanged_[i] = true;
      if (active->step == Step::kBuffers) {
        members_[i]->answer_buffers(source_);
      } else {
        members_[i]->answer_before_backward();
      }
    }
    if (active->step == Step::kBuffers) return;
    for (const size_t i : concerned) {
      members_[i]->answer_reduction(active->reductions[i] ==
                                    static_cast<int64_t>(PassReduction::kDelayed));
    }
  });
  return more;
}

void UnevenJoin::require_same_replicas() {
  if (members_.empty()) return;
  at::Tensor most = at::tensor(reductions_, at::kLong);
  communicator_->all_reduce(most, ReduceOp::kMax);
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!exchanged_[i]) continue;
    const bool had_data = reductions_[i] == most[static_cast<int64_t>(i)].item<int64_t>();
    members_[i]->require_same_replica(i, had_data);
  }
}

void UnevenJoin::copy_from_last_source() {
  for (size_t i = 0; i < members_.size(); ++i) {
    if (exchanged_[i]) members_[i]->copy_from(source_);
  }
}

UnevenJoin::Notice UnevenJoin::notice(Step step) const {
  return {.step = step,
          .reductions = std::vector<int64_t>(members_.size(), 0),
          .weights = std::vector<int64_t>(members_.size(), 0)};
}

void UnevenJoin::require_same_join() {
  const std::string own = std::to_string(members_.size()) + " models, divisor " +
                          std::to_string(static_cast<int>(options_.divide_by)) +
                          (options_.throw_on_early_end ? ", throw_on_early_end" : "");
  comm::require_same(*communicator_, own, [](const comm::RankDifference& difference) {
    return ErrorInfo{.what = "the ranks join differently: " + difference.text("with"),
                     .where = "join_uneven_inputs",
                     .hint = "pass the same models and options on all ranks"};
  });
}

std::vector<UnevenJoin::Notice> UnevenJoin::gather_notices(const Notice& own) const {
  std::vector<int64_t> words{static_cast<int64_t>(own.step)};
  words.insert(words.end(), own.reductions.begin(), own.reductions.end());
  words.insert(words.end(), own.weights.begin(), own.weights.end());
  at::NoGradGuard no_grad;
  at::Tensor sent = at::tensor(words, at::kLong);
  const int64_t width = sent.numel();
  at::Tensor received = at::empty({communicator_->world_size() * width}, at::kLong);
  group_->_allgather_base(received, sent)->wait();

  std::vector<Notice> all;
  const auto count = static_cast<int64_t>(members_.size());
  for (int rank = 0; rank < communicator_->world_size(); ++rank) {
    const int64_t* data = received.data_ptr<int64_t>() + rank * width;
    all.push_back({.step = static_cast<Step>(data[0]),
                   .reductions = {data + 1, data + 1 + count},
                   .weights = {data + 1 + count, data + 1 + 2 * count}});
  }
  return all;
}

std::vector<UnevenJoin::Notice> UnevenJoin::exchange(const Notice& own) {
  std::vector<Notice> all = gather_notices(own);
  std::optional<size_t> first_active;
  std::optional<size_t> first_finished;
  std::optional<size_t> differing;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].step == Step::kRefused) throw_refusal();
    if (all[rank].step == Step::kFinished) {
      if (!first_finished) first_finished = rank;
    } else if (!first_active) {
      first_active = rank;
    } else if (!all[rank].same_step(all[*first_active]) && !differing) {
      differing = rank;
    }
  }
  if (!first_active) return all;
  if (options_.throw_on_early_end && first_finished) {
    refuse({.what = "rank " + std::to_string(*first_finished) + " has run out of data, rank " +
                    std::to_string(*first_active) + " has not",
            .where = "join_uneven_inputs",
            .hint = "give all ranks the same number of batches, or leave throw_on_early_end off"});
  }
  if (differing) {
    refuse({.what = "the ranks with data do different things: rank " +
                    std::to_string(*first_active) + " is about to run " +
                    describe(all[*first_active]) + ", rank " + std::to_string(*differing) + " " +
                    describe(all[*differing]),
            .where = "join_uneven_inputs",
            .hint = "only the number of batches may differ, not the passes on each of them"});
  }
  source_ = static_cast<int>(*first_active);
  return all;
}

void UnevenJoin::refuse_for_all(const ErrorInfo& info) {
  try {
    (void)gather_notices(notice(Step::kRefused));
    comm::together(*communicator_, [&] { throw UsageError(info); });
  } catch (const UsageError&) {
    refuse(info);                          // as told to the others
  } catch (const std::exception& error) {  // what this rank has to say counts more
    log(LogLevel::kWarning,
        std::string("the other ranks could not be told why this one leaves a join: ") +
            error.what());
  }
  refuse(info);
}

void UnevenJoin::throw_refusal() {
  const auto where = "join_uneven_inputs";
  comm::together(*communicator_, [] {}, {.retell = comm::told_at(where)});
  refuse({.what = "another rank refused to go on", .where = where, .hint = "see its message"});
}

std::string UnevenJoin::describe(const Notice& notice) const {
  std::string models;
  for (size_t i = 0; i < notice.reductions.size(); ++i) {
    if (notice.reductions[i] != 0) models += (models.empty() ? "" : ", ") + std::to_string(i);
  }
  return (notice.step == Step::kBuffers ? "a forward pass of model "
                                        : "a backward pass of model ") +
         models;
}

void UnevenJoin::refuse(ErrorInfo info) const {
  throw_usage_error(*communicator_, std::move(info));
}

}  // namespace accelerate::detail
