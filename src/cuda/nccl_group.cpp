#include "cuda/nccl_group.h"

#include <c10/cuda/CUDAFunctions.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>
#include <vector>

namespace accelerate::cuda {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What aborting or closing a group may take, which waits for no other rank. Where it takes longer
// (a graph that recorded its exchanges lives on), the thread that does it is left behind.
constexpr milliseconds kEndLimit{5000};
constexpr milliseconds kPollInterval{2};
// How long exit() waits for exchanges that nobody has waited for.
constexpr milliseconds kDrainLimitAtExit{1000};

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }
int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  return tensors.empty() ? 0 : bytes_of(tensors[0]);
}

// libtorch's backend, which refuses to begin an exchange once it was aborted: by itself it would
// connect anew, without the other ranks. And which does not wait for others without a limit when
// the first exchange connects them.
class NcclGroup final : public c10d::ProcessGroupNCCL {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using OnBegin = device::ExchangeControl::OnBegin;

  NcclGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
            c10::intrusive_ptr<Options> options, c10::Device device)
      : ProcessGroupNCCL(store, rank, size, std::move(options)), device_(device) {
    setBoundDeviceId(device);
  }

  device::ExchangeControl::Progress progress() const {
    // With blocking waits there is no thread that counts, and nothing runs on after a wait.
    if (blockingWait_) return {};
    c10d::ProcessGroupStatus& status = *pgStatus_;
    return {.begun = std::atomic_ref(status.lastEnqueuedSeq).load(),
            .ended = std::atomic_ref(status.lastCompletedSeq).load()};
  }

  void forbid_exchanges() {
    {
      const std::lock_guard lock(connect_mutex_);
      is_open_ = false;
    }
    connect_changed_.notify_all();
  }

  void listen(OnBegin on_begin) {
    const std::lock_guard lock(listener_mutex_);
    on_begin_ = std::move(on_begin);
  }

  // Connects the ranks, once: NCCL waits for all of them there, however long, and cannot be
  // stopped. So it does that on a thread of its own, which is left behind where this throws: after
  // the timeout of the group, or when exchanges are forbidden.
  void connect() {
    std::unique_lock lock(connect_mutex_);
    if (!is_connecting_) {
      is_connecting_ = true;
      std::thread([self = c10::intrusive_ptr<NcclGroup>::reclaim_copy(this)] {
        self->connect_on_this_thread();
      }).detach();
    }
    const auto give_up = steady_clock::now() + getOptions()->timeout;
    connect_changed_.wait_until(lock, give_up,
                                [this] { return is_connected_ || connect_error_ || !is_open_; });
    if (connect_error_) std::rethrow_exception(connect_error_);
    require_open();
    TORCH_CHECK_WITH(
        DistBackendError, is_connected_, "NCCL has not connected the ranks within ",
        std::chrono::duration_cast<std::chrono::seconds>(getOptions()->timeout).count(), " s");
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const c10d::BroadcastOptions& options) override {
    require_connected();
    return told("broadcast", bytes_of(tensors), ProcessGroupNCCL::broadcast(tensors, options),
                static_cast<int>(options.rootRank));
  }
  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override {
    require_connected();
    return told("allreduce", bytes_of(tensors), ProcessGroupNCCL::allreduce(tensors, options));
  }
  WorkPtr allreduce_coalesced(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    require_connected();
    return told("allreduce_coalesced", bytes_of(tensors),
                ProcessGroupNCCL::allreduce_coalesced(tensors, options));
  }
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override {
    require_connected();
    return told("allgather", bytes_of(inputs),
                ProcessGroupNCCL::allgather(outputs, inputs, options));
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    require_connected();
    return told("allgather", bytes_of(input),
                ProcessGroupNCCL::_allgather_base(output, input, options));
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    require_connected();
    return told("reduce_scatter", bytes_of(input),
                ProcessGroupNCCL::_reduce_scatter_base(output, input, options));
  }
  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    require_connected();
    return told("scatter", bytes_of(outputs), ProcessGroupNCCL::scatter(outputs, inputs, options),
                static_cast<int>(options.rootRank));
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    require_connected();
    c10d::BarrierOptions on_device = options;
    if (on_device.device_ids.empty()) on_device.device_ids = {device_.index()};
    return told("barrier", 0, ProcessGroupNCCL::barrier(on_device));
  }

 private:
  void require_open() const {
    TORCH_CHECK_WITH(DistBackendError, is_open_, "NCCL was aborted after a failure");
  }

  void require_connected() {
    require_open();
    if (!is_connected_) connect();
  }

  void connect_on_this_thread() noexcept {
    std::exception_ptr error;
    try {
      c10::cuda::set_device(device_.index());
      eagerConnectSingleDevice(device_);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(connect_mutex_);
      connect_error_ = error;
      is_connected_ = error == nullptr;
    }
    connect_changed_.notify_all();
  }

  WorkPtr told(std::string_view name, int64_t bytes, WorkPtr work, int root = 0) {
    const std::lock_guard lock(listener_mutex_);
    if (on_begin_ && work) {
      on_begin_({.number = static_cast<int64_t>(work->getSequencenumber()),
                 .name = name,
                 .bytes = bytes,
                 .root = root});
    }
    return work;
  }

  // The bound device of the base class is not reliable: a ProcessGroup that takes this backend over
  // sets it to its own, which is none.
  const c10::Device device_;
  std::atomic<bool> is_open_{true};
  std::atomic<bool> is_connected_{false};
  std::mutex connect_mutex_;  // guards what follows, and writing the two above
  std::condition_variable connect_changed_;
  bool is_connecting_ = false;
  std::exception_ptr connect_error_;

  std::mutex listener_mutex_;
  OnBegin on_begin_;
};

// Runs `work` on a thread of its own with `device` current. Returns whether it has ended within
// kEndLimit; its exceptions count as an end.
bool end_within_limit(int device, std::function<void()> work) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> ended = done->get_future();
  std::thread([device, work = std::move(work), done] {
    try {
      c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
      work();
    } catch (const std::exception& error) {
      TORCH_WARN("NCCL was not ended in order: ", error.what());
    }
    done->set_value();
  }).detach();
  return ended.wait_for(kEndLimit) == std::future_status::ready;
}

class NcclControl final : public device::ExchangeControl {
 public:
  NcclControl(c10::intrusive_ptr<NcclGroup> group, int device)
      : group_(std::move(group)), device_(device) {}

  Progress progress() const noexcept override { return group_->progress(); }

  void listen(OnBegin on_begin) override { group_->listen(std::move(on_begin)); }

  std::string trouble() const noexcept override {
    switch (group_->getError()) {
      case c10d::ErrorType::SUCCESS:
        return {};
      case c10d::ErrorType::TIMEOUT:
        return "timed out";
      case c10d::ErrorType::COMM_ERROR:
        return "NCCL reports an error";
      case c10d::ErrorType::REMOTE_ERROR:
        return "NCCL reports an error of another rank";
    }
    return "unknown";
  }

  void abort() noexcept override {
    group_->forbid_exchanges();
    if (has_ended_.exchange(true)) return;
    end_in_background([group = group_] { group->abort(); });
  }

  void end(milliseconds limit) noexcept override {
    if (has_ended_) return;
    if (!drain(limit)) return abort();
    group_->forbid_exchanges();
    if (has_ended_.exchange(true)) return;
    end_in_background([group = group_] { group->shutdown(); });
  }

 private:
  bool drain(milliseconds limit) const noexcept {
    const auto give_up = steady_clock::now() + limit;
    while (!progress().is_idle()) {
      if (has_ended_ || steady_clock::now() >= give_up) return false;
      std::this_thread::sleep_for(kPollInterval);
    }
    return true;
  }

  void end_in_background(std::function<void()> work) noexcept {
    try {
      if (!end_within_limit(device_, std::move(work))) {
        TORCH_WARN("NCCL has not ended within ", kEndLimit.count(), " ms; its thread is left");
      }
    } catch (const std::exception& error) {
      // No thread can be made. The destructor needs one too, and ends the process without it.
      TORCH_WARN("NCCL was not ended: ", error.what());
      (void)c10::intrusive_ptr<NcclGroup>(group_).release();
    }
  }

  const c10::intrusive_ptr<NcclGroup> group_;
  const int device_;
  std::atomic<bool> has_ended_{false};
};

// Those that are open, for exit(): it destroys nothing that main() holds.
class OpenGroups {
 public:
  // Never destroyed: exit() may come at any time.
  static OpenGroups& instance() {
    static auto& groups = *new OpenGroups;
    return groups;
  }

  void add(const std::shared_ptr<NcclControl>& control) {
    const std::lock_guard lock(mutex_);
    std::erase_if(controls_, [](const auto& other) { return other.expired(); });
    controls_.push_back(control);
  }

 private:
  OpenGroups() {
    std::atexit([] { instance().end_all(); });
  }

  void end_all() {
    if (getpid() != process_) return;  // a child that was forked holds none of them
    std::vector<std::weak_ptr<NcclControl>> controls;
    {
      const std::lock_guard lock(mutex_);
      controls.swap(controls_);
    }
    for (const auto& weak : controls) {
      if (const auto control = weak.lock()) control->end(kDrainLimitAtExit);
    }
  }

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::vector<std::weak_ptr<NcclControl>> controls_;
};

}  // namespace

device::OpenedExchanges make_nccl(const device::NcclRequest& request) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(request.device));
  auto group =
      c10::make_intrusive<NcclGroup>(request.store, request.rank, request.size, options, device);
  auto control = std::make_shared<NcclControl>(group, request.device);
  OpenGroups::instance().add(control);
  try {
    if (request.eager) group->connect();
  } catch (...) {
    control->abort();
    throw;
  }
  return {.backend = group, .control = control};
}

}  // namespace accelerate::cuda
