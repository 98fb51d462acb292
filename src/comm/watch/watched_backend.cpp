#include "comm/watch/watched_backend.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace accelerate::comm {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// How long a backend that ends in peace may take to finish what nobody waits for any more.
constexpr std::chrono::seconds kDrainLimit{1};

// A work of the backend below, or its end by the alarm.
class WatchedWork final : public c10d::Work {
 public:
  // `remainder` is what the caller's thread has left to do when the work below has ended well.
  WatchedWork(WorkPtr inner, std::function<void()> remainder)
      : c10d::Work(-1, inner->retrieveOpType()),
        inner_(std::move(inner)),
        remainder_(std::move(remainder)) {
    const FuturePtr below = inner_->getFuture();
    future_ = below->createInstance(below->elementType());
  }

  // What wait() does when the work has ended well: orders the current stream of the caller.
  void synchronize() override {
    inner_->synchronize();
    if (remainder_) remainder_();
  }
  FuturePtr getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }

  // The first of these two counts; each wakes those who wait.
  void take_result(c10::ivalue::Future& below) {
    if (below.hasError()) return fail(below.exception_ptr());
    if (settled_.test_and_set()) return;
    future_->markCompleted(below.value(), below.storages());
    finish();
  }
  void fail(const std::exception_ptr& why) {
    if (settled_.test_and_set()) return;
    future_->setError(why);
    finish(why);
  }

 private:
  WorkPtr inner_;
  std::function<void()> remainder_;
  FuturePtr future_;
  std::atomic_flag settled_;
};

// Of which exchange ranks must all be in: of as many bytes, and from the same root.
uint32_t operation_on(std::string_view name, const at::Tensor& tensor, int64_t root = 0) {
  return exchange_number(name, tensor.numel() * static_cast<int64_t>(tensor.element_size()), root);
}

using WatchedWorkPtr = c10::intrusive_ptr<WatchedWork>;

// The works of one backend that have not ended there. Outlives the backend where one never does.
class PendingWorks {
 public:
  PendingWorks(std::function<void()> abort, std::shared_ptr<CollectiveLog> log)
      : abort_(std::move(abort)), log_(std::move(log)) {}

  // Throws if the alarm has rung.
  void require_open() const {
    const std::lock_guard lock(mutex_);
    if (why_) std::rethrow_exception(why_);
  }

  void add(const WatchedWorkPtr& work, uint32_t operation) {
    std::exception_ptr why;
    {
      const std::lock_guard lock(mutex_);
      why = why_;
      Pending& pending = pending_[work.get()];
      pending.work = work;
      if (!why) pending.exchange = log_->begin_exchange(operation);
    }
    if (!why) return;
    abort();  // the alarm rang while the work was being started, and may not have come that far
    work->fail(why);
  }

  void remove(const WatchedWorkPtr& work) {
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(work.get());
    if (found != pending_.end()) {
      end_exchange(found->second);
      pending_.erase(found);
    }
    if (pending_.empty()) idle_.notify_all();
  }

  // The alarm. Works stay pending: those below still run, or hang.
  void end(const std::exception_ptr& why) {
    std::vector<WatchedWorkPtr> works;
    {
      const std::lock_guard lock(mutex_);
      why_ = why;
      for (auto& [address, pending] : pending_) {
        works.push_back(pending.work);
        end_exchange(pending);  // nobody waits for it any more
      }
      idle_.notify_all();  // there is no use in waiting any more
    }
    abort();
    for (const WatchedWorkPtr& work : works) work->fail(why);
  }

  void abort() {
    const std::lock_guard lock(abort_mutex_);
    if (abort_) abort_();
    abort_ = nullptr;
  }

  // Waits until no work is left, the alarm rings or `limit` has passed. Returns whether none is.
  bool drain(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    idle_.wait_for(lock, limit, [this] { return pending_.empty() || why_; });
    return pending_.empty();
  }

  // The backend goes: nobody may abort it from here on.
  void release_backend() {
    const std::lock_guard lock(abort_mutex_);
    abort_ = nullptr;
  }

 private:
  struct Pending {
    WatchedWorkPtr work;
    std::optional<CollectiveLog::Wait> exchange;  // while somebody waits for it
  };

  void end_exchange(Pending& pending) {
    if (pending.exchange) log_->end_wait(*pending.exchange);
    pending.exchange.reset();
  }

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable idle_;
  std::unordered_map<const void*, Pending> pending_;
  std::exception_ptr why_;

  std::mutex abort_mutex_;  // held while the backend is being aborted
  std::function<void()> abort_;
  const std::shared_ptr<CollectiveLog> log_;
};

// Only the collectives that this library and c10d's reducer make: another one would be refused by
// the base class, not waited for without the alarm.
class WatchedBackend final : public c10d::Backend {
 public:
  WatchedBackend(c10::intrusive_ptr<c10d::Backend> inner, std::function<void()> abort, Alarm& alarm,
                 std::shared_ptr<CollectiveLog> log)
      : c10d::Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        works_(std::make_shared<PendingWorks>(std::move(abort), std::move(log))) {
    registration_ = alarm.listen([weak = std::weak_ptr(works_)](const std::exception_ptr& why) {
      if (const auto works = weak.lock()) works->end(why);
    });
  }

  ~WatchedBackend() override {
    if (works_->drain(kDrainLimit)) {
      works_->release_backend();
      return;
    }
    // Gloo's destructor joins the threads that run its works, and one of them hangs: a send that
    // was under way when its connection broke is never told (only the timeout ends it). Nobody can
    // reach that thread, so it keeps what it works on until the process ends.
    works_->abort();
    (void)inner_.release();
  }
  WatchedBackend(const WatchedBackend&) = delete;
  WatchedBackend& operator=(const WatchedBackend&) = delete;

  const std::string getBackendName() const override { return inner_->getBackendName(); }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const c10d::BroadcastOptions& options) override {
    return watch(operation_on("broadcast", tensors[0], options.rootRank),
                 [&] { return inner_->broadcast(tensors, options); });
  }
  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override {
    return watch(operation_on("allreduce", tensors[0]),
                 [&] { return inner_->allreduce(tensors, options); });
  }
  WorkPtr allreduce_sparse(std::vector<at::Tensor>& tensors,
                           const c10d::AllreduceOptions& options) override {
    return watch(operation_on("allreduce_sparse", tensors[0]),
                 [&] { return inner_->allreduce_sparse(tensors, options); });
  }
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override {
    return watch(operation_on("allgather", inputs[0]),
                 [&] { return inner_->allgather(outputs, inputs, options); });
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    return watch(operation_on("allgather", input),
                 [&] { return inner_->_allgather_base(output, input, options); });
  }
  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    return watch(operation_on("scatter", outputs[0], options.rootRank),
                 [&] { return inner_->scatter(outputs, inputs, options); });
  }
  // Gloo has none: its backend reduces all of it and takes a part of that, but its work has no
  // future to listen to, so the same is done here.
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    std::vector<at::Tensor> sum{input.clone()};
    c10d::AllreduceOptions reduction;
    reduction.reduceOp = options.reduceOp;
    reduction.timeout = options.timeout;
    return watch(
        operation_on("reduce_scatter", input), [&] { return inner_->allreduce(sum, reduction); },
        [output, sum = sum[0], rank = getRank()] {
          const at::NoGradGuard no_grad;
          output.copy_(
              sum.view({-1}).narrow(0, rank * output.numel(), output.numel()).view(output.sizes()));
        });
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return watch(operation_number("barrier"), [&] { return inner_->barrier(options); });
  }

 private:
  template <class Start>
  WorkPtr watch(uint32_t operation, Start start, std::function<void()> remainder = nullptr) {
    works_->require_open();
    const WorkPtr below = start();
    auto work = c10::make_intrusive<WatchedWork>(below, std::move(remainder));
    works_->add(work, operation);
    // Runs on a thread of the backend; keeps the work until then, since a caller may keep no more
    // than its future.
    below->getFuture()->addCallback([work, works = works_](c10::ivalue::Future& done) {
      works->remove(work);
      work->take_result(done);  // last: whoever waits goes on at once and wants this core
    });
    return work;
  }

  c10::intrusive_ptr<c10d::Backend> inner_;
  const std::shared_ptr<PendingWorks> works_;
  Alarm::Registration registration_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> watch_backend(c10::intrusive_ptr<c10d::Backend> backend,
                                                std::function<void()> abort, Alarm& alarm,
                                                std::shared_ptr<CollectiveLog> log) {
  return c10::make_intrusive<WatchedBackend>(std::move(backend), std::move(abort), alarm,
                                             std::move(log));
}

}  // namespace accelerate::comm
