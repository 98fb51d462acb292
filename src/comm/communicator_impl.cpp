#include "comm/communicator_impl.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string_view>

#include "accelerate/errors.h"
#include "accelerate/process_state.h"
#include "base/environment.h"
#include "comm/process_group.h"
#include "comm/rendezvous.h"
#include "comm/timeouts.h"

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

}  // namespace

Communicator::Impl::Impl(const ProcessState& state, const ProcessGroupOptions& options)
    : options_(options),
      rank_(state.rank()),
      world_size_(state.world_size()),
      serves_cuda_(state.device().is_cuda()) {
  if (alone()) return;
  ignore_broken_pipes();
  detail::stamped(*this, [&] {
    options_ = comm::with_timeouts(options, environment_variable);
    if (environment_flag("ACCELERATE_DEBUG_MODE")) options_.check_collectives = true;
    const comm::Meeting meeting = comm::meet(state.ranks(), *options_.rendezvous_timeout);
    watch_ =
        std::make_unique<comm::PeerWatch>(meeting.second_connection, log_, alarm_, state.ranks());
    group_ = comm::open_process_group(meeting.store, state, options_, *alarm_, log_);
  });
}

std::string Communicator::Impl::describe(const std::string& name, const at::Tensor& sample) {
  std::string text = name;
  if (!sample.defined()) return text;
  text += ' ';
  text += c10::toString(sample.scalar_type());
  text += '[';
  for (int64_t dim = 0; dim < sample.dim(); ++dim) {
    if (dim > 0) text += ", ";
    text += std::to_string(sample.size(dim));
  }
  return text + ']';
}

void Communicator::Impl::require_rank(int root, const char* operation) const {
  if (root >= 0 && root < world_size_) return;
  refuse({.what = "root " + std::to_string(root) + " is not a rank",
          .where = operation,
          .hint = "ranks are 0 to " + std::to_string(world_size_ - 1)});
}

void Communicator::Impl::require_tensor(const at::Tensor& tensor, const char* operation) const {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || tensor.is_quantized()) {
    refuse({.what = !tensor.defined()       ? "the tensor is undefined"
                    : tensor.is_quantized() ? "the tensor is quantized"
                                            : "the tensor is sparse",
            .where = operation,
            .hint = "pass a dense tensor"});
  }
  if (alone() || tensor.is_cpu() || (tensor.is_cuda() && serves_cuda_)) return;
  refuse({.what = "the tensor is on " + tensor.device().str() + ", but this group serves " +
                  (serves_cuda_ ? "cpu and cuda" : "cpu"),
          .where = operation,
          .hint = "move it to the device of the accelerator first"});
}

void Communicator::Impl::require_same_on_all_ranks(const std::string& operation) {
  constexpr int64_t kWidth = 256;
  at::Tensor own = at::zeros({kWidth}, at::kByte);
  const size_t length = std::min(operation.size(), static_cast<size_t>(kWidth));
  std::memcpy(own.data_ptr(), operation.data(), length);
  at::Tensor all = at::empty({world_size_ * kWidth}, at::kByte);
  exchange("comparison before " + operation, [&] { group_->_allgather_base(all, own)->wait(); });
  const auto* bytes = static_cast<const char*>(all.data_ptr());
  std::string differing;
  for (int rank = 0; rank < world_size_; ++rank) {
    const std::string theirs(bytes + rank * kWidth, strnlen(bytes + rank * kWidth, kWidth));
    differing += (rank == 0 ? "rank " : ", rank ") + std::to_string(rank) + ": " + theirs;
  }
  if (at::equal(all.view({world_size_, kWidth}), own.expand({world_size_, kWidth}))) return;
  refuse({.what = "the ranks call different collectives (" + differing + ")",
          .where = operation,
          .hint = "all ranks must make the same calls, with the same shapes"});
}

void Communicator::Impl::throw_refused(const std::string& operation,
                                       const c10::Error& cause) const {
  refuse({.what = "libtorch refuses the tensors: " + first_line(cause.what()),
          .where = operation,
          .hint = "all ranks must pass dense tensors of one type, shape and device"});
}

void Communicator::Impl::throw_comm_error(int64_t sequence, const std::exception& cause) {
  const comm::CollectiveRecord record = log_->latest();
  const comm::Diagnosis diagnosis = watch_->explain_failure(sequence);
  failure_ = "collective #" + std::to_string(sequence) + " " + record.operation +
             " failed: " + diagnosis.what;
  hint_ = diagnosis.hint;
  if (!diagnosis.misused.empty()) {
    alarm_->ring("a rank refused to go on");
    refuse({.what = diagnosis.what, .where = diagnosis.misused, .hint = diagnosis.hint});
  }
  alarm_->ring("an earlier collective failed");  // for what else runs: buckets of gradients
  throw_unusable(failure_, first_line(cause.what()));
}

void Communicator::Impl::refuse_on_all(ErrorInfo info) {
  const comm::Diagnosis first =
      watch_->tell_all({.what = info.what, .hint = info.hint, .misused = info.where});
  if (!first.misused.empty()) {
    info = {.what = first.what, .where = first.misused, .hint = first.hint};
  }
  refuse(std::move(info));
}

void Communicator::Impl::require_usable() const {
  if (!failure_.empty()) throw_unusable("the group is unusable: " + failure_, "an earlier call");
}

void Communicator::Impl::throw_unusable(const std::string& what, const std::string& where) const {
  CommError failure({.what = what, .where = where, .hint = hint_});
  failure.set_rank(rank_, world_size_);
  throw failure;
}

}  // namespace accelerate
