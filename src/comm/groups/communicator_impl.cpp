#include "comm/groups/communicator_impl.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <numeric>
#include <string_view>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "accelerate/process_state.h"
#include "base/environment.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/timeouts.h"
#include "comm/watch/alarmed_store.h"
#include "comm/watch/last_meeting.h"
#include "comm/watch/rank_record.h"

namespace accelerate {
namespace {

// The first line, without the stack that c10 appends.
std::string first_line(const char* text) {
  const std::string_view all(text);
  return std::string(all.substr(0, all.find('\n')));
}

// Gloo writes to sockets whose peer may be gone. By default that ends the process by SIGPIPE before
// any error can be reported; ignored, it becomes an error of the write. A handler of the program's
// own stays.
void ignore_broken_pipes() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) != 0) return;
  const bool is_default = (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == SIG_DFL;
  if (is_default) std::signal(SIGPIPE, SIG_IGN);
}

constexpr const char* kGroupOfAll = "all";
constexpr int kSplitWords = 3;  // of a rank in split(): colour, key, whether it has room

}  // namespace

Communicator::Impl::Impl(const ProcessState& state, const ProcessGroupOptions& options,
                         std::shared_ptr<EventStream> events)
    : rank_(state.rank()),
      served_kind_(state.device().type()),
      job_(std::make_shared<comm::Job>(state, std::move(events))) {
  std::vector<int> all(static_cast<size_t>(state.world_size()));
  std::iota(all.begin(), all.end(), 0);
  entry_ = std::make_shared<comm::GroupEntry>(
      comm::GroupEntry{.name = kGroupOfAll,
                       .ranks = std::move(all),
                       .log = std::make_shared<comm::CollectiveLog>(job_->events)});
  log().tell_name(entry_->name);
  job_->options = options;
  if (alone()) return;
  ignore_broken_pipes();
  detail::stamped(*this, [&] {
    job_->options = comm::with_timeouts(options, environment_variable);
    if (environment_flag("ACCELERATE_DEBUG_MODE")) job_->options.check_collectives = true;
    const comm::Meeting meeting = comm::meet(state.ranks(), *job_->options.rendezvous_timeout);
    job_->store = meeting.store;
    job_->watch = std::make_unique<comm::PeerWatch>(meeting.second_connection, job_->groups,
                                                    job_->events, job_->alarm, state.ranks());
    open(job_->store);
  });
  job_->groups->add(entry_);
}

Communicator::Impl::Impl(std::shared_ptr<comm::Job> job, std::string name, std::vector<int> members,
                         std::shared_ptr<comm::CollectiveLog> log_of_group)
    : rank_(static_cast<int>(std::find(members.begin(), members.end(), job->state.rank()) -
                             members.begin())),
      served_kind_(job->state.device().type()),
      job_(std::move(job)) {
  entry_ = std::make_shared<comm::GroupEntry>(comm::GroupEntry{
      .name = std::move(name), .ranks = std::move(members), .log = std::move(log_of_group)});
  log().tell_name(entry_->name);
  if (alone()) return;
  job_->groups->add(entry_);  // from here on the watch sees if one of them is lost
  try {
    run(comm::operation_event("split"), compat::is_communication_failure, [&] {
      detail::stamped(*this, [&] {
        open(c10::make_intrusive<comm::AlarmedStore>(entry_->name, job_->store, job_->alarm));
      });
    });
  } catch (...) {
    job_->groups->remove(entry_);
    throw;
  }
}

Communicator::Impl::~Impl() {
  finish_device_exchanges();
  job_->groups->remove(entry_);
}

void Communicator::Impl::open(const c10::intrusive_ptr<c10d::Store>& store) {
  const comm::GroupPlace place{.rank = rank_, .world_size = world_size()};
  backends_ =
      comm::open_backends(store, job_->state, job_->options, *job_->alarm, entry_->log, place);
  group_ = backends_.make_process_group(store, place);
  auto control = backends_.control();
  if (!control) return;
  device_watch_ = std::make_unique<comm::DeviceWatch>(
      std::move(control), job_->alarm, entry_->log,
      [job = job_.get(), entry = entry_](int64_t collective, const std::string& /*cause*/) {
        job->watch->explain_failure(entry, collective);
        job->alarm->ring("an exchange on the device failed");
      });
}

void Communicator::Impl::finish_device_exchanges() {
  constexpr std::chrono::seconds kSlack{5};  // for the peer watch, when the time is over
  constexpr std::chrono::seconds kMoment{1};
  constexpr std::chrono::seconds kMeetingLimit{2};
  if (!device_watch_) return;
  const bool in_peace = failure_.empty() && std::uncaught_exceptions() <= exceptions_at_begin_;
  const bool is_done = device_watch_->finish(in_peace ? *job_->options.timeout + kSlack : kMoment);
  const bool was_used = device_watch_->was_used();
  if (in_peace && !is_done) tell_of_lost_exchanges();
  device_watch_.reset();
  if (in_peace && is_done && was_used) {
    comm::meet_before_leaving(job_->store, entry_->name, world_size(), job_->alarm, kMeetingLimit);
  }
}

// Nobody makes a call any more that could throw it.
void Communicator::Impl::tell_of_lost_exchanges() const {
  const comm::CollectiveRecord last = log().latest();
  const comm::Diagnosis diagnosis =
      job_->watch->explain_failure(entry_, log().oldest_running().value_or(last.sequence));
  accelerate::log(LogLevel::kError,
                  "exchanges on the device failed while nobody waited for them, the latest in "
                  "collective #" +
                      std::to_string(last.sequence) + " " + last.operation + among() + ": " +
                      diagnosis.what + "; what they were to make is undefined. " + diagnosis.hint);
}

std::shared_ptr<Communicator::Impl> Communicator::Impl::split(int color, int key) {
  using comm::CollectiveLog;
  // Taken before the ranks tell each other who has room.
  auto log_of_group = std::make_shared<CollectiveLog>(
      job_->events,
      alone() || color < 0 ? CollectiveLog::Board::kNone : CollectiveLog::Board::kTwoLines);
  std::vector<int64_t> words{color, key, log_of_group->is_shown() ? 1 : 0};
  std::vector<int64_t> all = words;
  if (!alone()) {
    at::Tensor own = at::tensor(words, at::kLong);
    at::Tensor gathered = at::empty({kSplitWords * world_size()}, at::kLong);
    collective(comm::operation_event("split"), own,
               [&] { return host_collectives().all_gather(gathered, own); });
    all.assign(gathered.data_ptr<int64_t>(), gathered.data_ptr<int64_t>() + gathered.numel());
  }
  const int number = ++splits_;
  std::map<int64_t, std::vector<std::pair<int64_t, int>>> groups;  // by colour: key, rank here
  for (int rank = 0; rank < world_size(); ++rank) {
    const size_t at = kSplitWords * static_cast<size_t>(rank);
    if (all[at] >= 0) groups[all[at]].emplace_back(all[at + 1], rank);
  }
  for (const auto& [of_color, ranks] : groups) {
    for (const auto& [order, rank] : ranks) {
      const bool has_room = all[kSplitWords * static_cast<size_t>(rank) + 2] != 0;
      if (!has_room && ranks.size() > 1) refuse_one_more_group(rank);
    }
  }
  if (color < 0) return nullptr;
  std::vector<std::pair<int64_t, int>>& chosen = groups[color];
  if (chosen.size() == 1) {
    log_of_group = std::make_shared<CollectiveLog>(job_->events, CollectiveLog::Board::kNone);
  }
  std::sort(chosen.begin(), chosen.end());
  std::vector<int> members;
  members.reserve(chosen.size());
  for (const auto& [order, rank] : chosen) {
    members.push_back(entry_->ranks[static_cast<size_t>(rank)]);
  }
  return std::make_shared<Impl>(
      job_, entry_->name + '/' + std::to_string(number) + '.' + std::to_string(color),
      std::move(members), std::move(log_of_group));
}

void Communicator::Impl::refuse_one_more_group(int rank) const {
  refuse({.what = "there are too many groups of ranks at once on rank " +
                  std::to_string(entry_->ranks[static_cast<size_t>(rank)]),
          .where = "split",
          .hint = "keep the groups that are needed again, and let the others go"});
}

std::string Communicator::Impl::among() const { return comm::among(*entry_, global_size()); }

// On the way of every collective: no string is made.
Event Communicator::Impl::describe(Event name, const at::Tensor& sample) {
  if (!sample.defined()) return name;
  name.append(" ").append(c10::toString(sample.scalar_type())).append("[");
  for (int64_t dim = 0; dim < sample.dim(); ++dim) {
    if (dim > 0) name.append(", ");
    name.append(sample.size(dim));
  }
  return name.append("]");
}

void Communicator::Impl::require_rank(int root, const char* operation) const {
  if (root >= 0 && root < world_size()) return;
  refuse({.what = "root " + std::to_string(root) + " is not a rank",
          .where = operation,
          .hint = "ranks are 0 to " + std::to_string(world_size() - 1)});
}

void Communicator::Impl::require_tensor(const at::Tensor& tensor, const char* operation) const {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || tensor.is_quantized()) {
    refuse({.what = !tensor.defined()       ? "the tensor is undefined"
                    : tensor.is_quantized() ? "the tensor is quantized"
                                            : "the tensor is sparse",
            .where = operation,
            .hint = "pass a dense tensor"});
  }
  if (alone() || tensor.is_cpu() || tensor.device().type() == served_kind_) return;
  refuse({.what = "the tensor is on " + tensor.device().str() + ", but this group serves " +
                  (served_kind_ == c10::kCPU ? "" : "cpu and ") +
                  c10::DeviceTypeName(served_kind_, /*lower_case=*/true),
          .where = operation,
          .hint = "move it to the device of the accelerator first"});
}

void Communicator::Impl::require_same_on_all_ranks(std::string_view operation) {
  constexpr int64_t kWidth = 256;
  at::Tensor own = at::zeros({kWidth}, at::kByte);
  const size_t length = std::min(operation.size(), static_cast<size_t>(kWidth));
  std::memcpy(own.data_ptr(), operation.data(), length);
  at::Tensor all = at::empty({world_size() * kWidth}, at::kByte);
  require_usable();
  const Event begun = log().begin(comm::operation_event("comparison before ").append(operation));
  convert_errors(begun, [&] { host_collectives().all_gather(all, own)->wait(); });
  log().end(begun.number);
  const auto* bytes = static_cast<const char*>(all.data_ptr());
  std::string differing;
  for (int rank = 0; rank < world_size(); ++rank) {
    const std::string theirs(bytes + rank * kWidth, strnlen(bytes + rank * kWidth, kWidth));
    differing += (rank == 0 ? "rank " : ", rank ") +
                 std::to_string(entry_->ranks[static_cast<size_t>(rank)]) + ": " + theirs;
  }
  if (at::equal(all.view({world_size(), kWidth}), own.expand({world_size(), kWidth}))) return;
  refuse({.what = "the ranks call different collectives (" + differing + ")",
          .where = std::string(operation),
          .hint = "all ranks must make the same calls, with the same shapes"});
}

void Communicator::Impl::throw_refused(const Event& begun, const std::exception& cause) const {
  refuse({.what = "libtorch refuses the tensors: " + first_line(cause.what()),
          .where = std::string(begun.text()),
          .hint = "all ranks must pass dense tensors of one type, shape and device"});
}

void Communicator::Impl::throw_comm_error(const Event& begun, const std::exception& cause) {
  const comm::Diagnosis diagnosis = job_->watch->explain_failure(entry_, begun.number);
  failure_ = "collective #" + std::to_string(begun.number) + " " + std::string(begun.text()) +
             among() + " failed: " + diagnosis.what;
  hint_ = diagnosis.hint;
  if (!diagnosis.misused.empty()) {
    job_->alarm->ring("a rank refused to go on");
    refuse({.what = diagnosis.what, .where = diagnosis.misused, .hint = diagnosis.hint});
  }
  job_->alarm->ring("an earlier collective failed");  // for what else runs: buckets of gradients
  throw_unusable(failure_, first_line(cause.what()));
}

CommError Communicator::Impl::failure_on_other_thread(const std::string& cause) const {
  const comm::CollectiveRecord last = log().latest();
  const comm::Diagnosis diagnosis = job_->watch->explain_failure(entry_, last.sequence);
  // A rank that has gone on cannot say what it did before.
  CommError failure(
      {.what = "collective #" + std::to_string(last.sequence) + " " + last.operation + among() +
               " failed: a message came that is longer than this call expects, so another rank has "
               "made another call (" +
               diagnosis.what + ")",
       .where = first_line(cause.c_str()),
       .hint = "all ranks must make the same calls in the same order; ACCELERATE_DEBUG_MODE=true "
               "finds the first that differs"});
  detail::stamp(failure, *this);
  return failure;
}

void Communicator::Impl::refuse_on_all(ErrorInfo info) {
  const comm::Diagnosis first =
      job_->watch->tell_all({.what = info.what, .hint = info.hint, .misused = info.where});
  if (!first.misused.empty()) {
    info = {.what = first.what, .where = first.misused, .hint = first.hint};
  }
  refuse(std::move(info));
}

void Communicator::Impl::require_usable() {
  if (!failure_.empty()) throw_unusable("the group is unusable: " + failure_, "an earlier call");
  if (!device_watch_) return;  // whoever waits is told by the work
  try {
    job_->alarm->require_silence();
  } catch (const std::exception& cause) {
    const comm::CollectiveRecord last = log().latest();
    Event begun = comm::operation_event(last.operation);
    begun.number = last.sequence;
    throw_comm_error(begun, cause);
  }
}

void Communicator::Impl::throw_unusable(const std::string& what, const std::string& where) const {
  CommError failure({.what = what, .where = where, .hint = hint_});
  detail::stamp(failure, *this);
  throw failure;
}

}  // namespace accelerate
