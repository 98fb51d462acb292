// The state behind Communicator.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/detail/stamped.h"
#include "comm/groups/job.h"
#include "comm/groups/process_group.h"
#include "comm/groups/work_state.h"
#include "comm/watch/collective_log.h"
#include "comm/watch/device_watch.h"
#include "compat/c10d.h"

namespace accelerate {

class Communicator::Impl : public std::enable_shared_from_this<Communicator::Impl> {
 public:
  // The group of all ranks. What it does goes into `events`.
  Impl(const ProcessState& state, const ProcessGroupOptions& options,
       std::shared_ptr<EventStream> events);
  // The group of `members`, ranks of the job in their order, of which this is one. Collective over
  // them. `name` is of no other group of the job, `log` is shown where there are several.
  Impl(std::shared_ptr<comm::Job> job, std::string name, std::vector<int> members,
       std::shared_ptr<comm::CollectiveLog> log);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Runs `work` as the next collective of the log. Exceptions for which `is_failure` holds become
  // CommError with the ranks that are to blame; others pass.
  template <class IsFailure, class WorkFunction>
  void run(const Event& operation, IsFailure is_failure, WorkFunction work) {
    require_usable();
    const Event begun = log().begin(operation);
    try {
      work();
    } catch (const std::exception& error) {
      if (is_failure(error)) throw_comm_error(begun, error);  // others read that it has not ended
      log().end(begun.number);
      throw;
    } catch (...) {
      log().end(begun.number);
      throw;
    }
    log().end(begun.number);
  }

  // One operation that `start` begins, on tensors like `sample`. The text of `name` says all
  // in which ranks must agree: the operation, its root, how it reduces. Empty tensors are compared,
  // where that is asked for, but not sent. `finish` is what is left to do when it has ended well.
  template <class Start>
  Work start(const Event& name, const at::Tensor& sample, Start start,
             std::function<void()> finish = nullptr) {
    const Event operation = describe(name, sample);
    if (job_->options.check_collectives) require_same_on_all_ranks(operation.text());
    if (sample.defined() && sample.numel() == 0) return {};
    require_usable();
    const Event begun = log().begin(operation, comm::CollectiveLog::EndsWith::kExchange);
    device::CollectiveWorkPtr work;
    convert_errors(begun, [&] { work = start(); });
    return Work(std::make_unique<Work::State>(shared_from_this(), begun, std::move(work),
                                              std::move(finish)));
  }
  // The same, and waits for it.
  template <class Start>
  void collective(const Event& name, const at::Tensor& sample, Start start) {
    this->start(name, sample, std::move(start)).wait();
  }
  // The end of what start() began.
  void wait_for(const Event& begun, device::CollectiveWork& work) {
    convert_errors(begun, [&] { work.wait(); });
    log().end(begun.number);
  }

  // Where that is asked for: throws UsageError on all ranks if `call`, which talks to peers by
  // itself, is not the same on all of them.
  void compare(const std::string& call) {
    if (!alone() && job_->options.check_collectives) require_same_on_all_ranks(call);
  }

  // What the first rank that called this with the same key gave, and which rank that was. Nothing
  // for that rank itself, at world size 1, and where the store does not answer at once. Not
  // collective.
  std::optional<comm::FirstValue> first_value(const std::string& key, const std::string& value) {
    return job_->watch ? job_->watch->first_value(entry_->name + '/' + key, value) : std::nullopt;
  }

  // Throws UsageError on all ranks: here, and where the others are in a collective or come to the
  // next one. The group has ended then. Where another rank has ended it so before, with its error.
  // Not collective; several ranks only. Waits a few seconds at most, until the others know.
  [[noreturn]] void refuse_on_all(ErrorInfo info);

  // What the collective that this rank is in would throw, which fails with `cause` on a thread of a
  // backend, where nobody can catch it. Tells the other ranks, and waits a few seconds for what
  // they are doing. Any thread; several ranks only.
  CommError failure_on_other_thread(const std::string& cause) const;

  // A group of those that give the same colour; null for a negative one. Collective. Throws
  // UsageError on all ranks where one of them has no room for another group.
  std::shared_ptr<Impl> split(int color, int key);

  bool alone() const { return entry_->ranks.size() == 1; }
  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(entry_->ranks.size()); }
  int global_rank() const { return job_->state.rank(); }
  int global_size() const { return job_->state.world_size(); }
  const std::vector<int>& global_ranks() const { return entry_->ranks; }
  // What tensors of this group go through: those like `tensor`, those of a kind of device, and
  // small ones of the host. Not at world size 1.
  device::Collectives& collectives_for(const at::Tensor& tensor) const {
    return backends_.of(tensor.device().type());
  }
  device::Collectives& collectives_of(c10::DeviceType kind) const { return backends_.of(kind); }
  device::Collectives& host_collectives() const { return backends_.host(); }
  // The same for what drives c10d itself. Null at world size 1.
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }
  const comm::Job& job() const { return *job_; }
  comm::CollectiveLog& log() const { return *entry_->log; }
  comm::OpenWorks& open_works() const { return *entry_->works; }
  // Throws CommError if an earlier call did, or if the exchanges of a device were ended by a
  // failure since. Not collective.
  void require_usable();
  // Throws UsageError with the rank.
  [[noreturn]] void refuse(ErrorInfo info) const {
    detail::throw_usage_error(*this, std::move(info));
  }
  // Throws UsageError unless `root` is a rank.
  void require_rank(int root, const char* operation) const;
  // Throws UsageError unless `tensor` is a dense tensor on a device that this group serves.
  void require_tensor(const at::Tensor& tensor, const char* operation) const;

 private:
  // Runs `work`, which sends or waits for the collective `begun`. What it throws becomes UsageError
  // if libtorch refuses the arguments, and CommError otherwise; running out of memory passes.
  template <class WorkFunction>
  void convert_errors(const Event& begun, WorkFunction work) {
    try {
      work();
    } catch (const std::exception& error) {
      if (!compat::is_refusal(error)) throw_comm_error(begun, error);
      log().end(begun.number);
      if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) throw;
      throw_refused(begun, error);
    } catch (...) {
      log().end(begun.number);
      throw;
    }
  }

  // Opens the connections. Collective over the group.
  void open(const c10::intrusive_ptr<c10d::Store>& store);
  static Event describe(Event name, const at::Tensor& sample);
  // " among ranks 0 and 2"; nothing for the group of all.
  std::string among() const;
  void require_same_on_all_ranks(std::string_view operation);
  // `rank` is that of this group which has no room.
  [[noreturn]] void refuse_one_more_group(int rank) const;
  // What a device still works on is waited for, unless the group has failed or an exception is on
  // its way: then it has a moment, and is aborted.
  void finish_device_exchanges();
  void tell_of_lost_exchanges() const;
  [[noreturn]] void throw_refused(const Event& begun, const std::exception& cause) const;
  [[noreturn]] void throw_comm_error(const Event& begun, const std::exception& cause);
  [[noreturn]] void throw_unusable(const std::string& what, const std::string& where) const;

  int rank_;
  c10::DeviceType served_kind_;  // beside the CPU
  int splits_ = 0;               // made so far
  std::string failure_;          // what ended the group; empty while it is usable
  std::string hint_;             // what to do about it
  int exceptions_at_begin_ = std::uncaught_exceptions();
  comm::GroupBackends backends_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<const comm::GroupEntry> entry_;
  std::shared_ptr<comm::Job> job_;  // its watch says goodbye before the connections close
  // Null where all waits block. Last: it asks the watch of the job.
  std::unique_ptr<comm::DeviceWatch> device_watch_;
};

namespace comm {

struct CommunicatorAccess {
  static Communicator::Impl& impl(Communicator& communicator) { return *communicator.impl_; }
  static std::unique_ptr<Communicator> make(std::shared_ptr<Communicator::Impl> impl) {
    return std::unique_ptr<Communicator>(new Communicator(std::move(impl)));
  }
};

// What a Communicator does not show its users.
inline Communicator::Impl& impl_of(Communicator& communicator) {
  return CommunicatorAccess::impl(communicator);
}

}  // namespace comm
}  // namespace accelerate
