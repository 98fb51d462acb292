// The state behind Communicator.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "accelerate/communicator.h"
#include "accelerate/detail/stamped.h"
#include "comm/alarm.h"
#include "comm/collective_log.h"
#include "comm/peer_watch.h"
#include "compat/c10d.h"

namespace accelerate {

class Communicator::Impl {
 public:
  Impl(const ProcessState& state, const ProcessGroupOptions& options);

  // Runs `work` as the next collective of the log. Exceptions for which `is_failure` holds become
  // CommError with the ranks that are to blame; others pass.
  template <class IsFailure, class WorkFunction>
  void run(const std::string& operation, IsFailure is_failure, WorkFunction work) {
    require_usable();
    const int64_t sequence = log_->begin(operation);
    try {
      work();
    } catch (const std::exception& error) {
      if (is_failure(error)) throw_comm_error(sequence, error);
      log_->end();
      throw;
    }
    log_->end();
  }

  // One c10d operation that `start` begins, on tensors like `sample`. Waits for it. `name` says all
  // in which ranks must agree: the operation, its root, how it reduces. Empty tensors are compared,
  // where that is asked for, but not sent.
  template <class Start>
  void collective(const std::string& name, const at::Tensor& sample, Start start) {
    const std::string operation = describe(name, sample);
    if (options_.check_collectives) require_same_on_all_ranks(operation);
    if (sample.defined() && sample.numel() == 0) return;
    exchange(operation, [&] { start()->wait(); });
  }

  // Where that is asked for: throws UsageError on all ranks if `call`, which talks to peers by
  // itself, is not the same on all of them.
  void compare(const std::string& call) {
    if (!alone() && options_.check_collectives) require_same_on_all_ranks(call);
  }

  // What the first rank that called this with the same key gave, and which rank that was. Nothing
  // for that rank itself, at world size 1, and where the store does not answer at once. Not
  // collective.
  std::optional<comm::FirstValue> first_value(const std::string& key, const std::string& value) {
    return watch_ ? watch_->first_value(key, value) : std::nullopt;
  }

  // Throws UsageError on all ranks: here, and where the others are in a collective or come to the
  // next one. The group has ended then. Where another rank has ended it so before, with its error.
  // Not collective; several ranks only. Waits a few seconds at most, until the others know.
  [[noreturn]] void refuse_on_all(ErrorInfo info);

  bool alone() const { return world_size_ == 1; }
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }
  comm::CollectiveLog& log() { return *log_; }
  // Throws UsageError with the rank.
  [[noreturn]] void refuse(ErrorInfo info) const {
    detail::throw_usage_error(*this, std::move(info));
  }
  // Throws UsageError unless `root` is a rank.
  void require_rank(int root, const char* operation) const;
  // Throws UsageError unless `tensor` is a dense tensor on a device that this group serves.
  void require_tensor(const at::Tensor& tensor, const char* operation) const;

 private:
  // Runs `work`, which sends and waits. What it throws becomes UsageError if libtorch refuses the
  // arguments, and CommError otherwise; running out of memory passes.
  template <class WorkFunction>
  void exchange(const std::string& operation, WorkFunction work) {
    try {
      run(
          operation, [](const std::exception& error) { return !compat::is_refusal(error); }, work);
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error& error) {
      throw_refused(operation, error);
    }
  }

  static std::string describe(const std::string& name, const at::Tensor& sample);
  void require_same_on_all_ranks(const std::string& operation);
  // Throws the CommError of an earlier call, if there was one.
  void require_usable() const;
  [[noreturn]] void throw_refused(const std::string& operation, const c10::Error& cause) const;
  [[noreturn]] void throw_comm_error(int64_t sequence, const std::exception& cause);
  [[noreturn]] void throw_unusable(const std::string& what, const std::string& where) const;

  ProcessGroupOptions options_;
  int rank_;
  int world_size_;
  bool serves_cuda_;
  std::string failure_;  // what ended the group; empty while it is usable
  std::string hint_;     // what to do about it
  const std::shared_ptr<comm::CollectiveLog> log_ = std::make_shared<comm::CollectiveLog>();
  const std::shared_ptr<comm::Alarm> alarm_ = std::make_shared<comm::Alarm>();
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::unique_ptr<comm::PeerWatch> watch_;  // last: says goodbye before the connections close
};

}  // namespace accelerate
