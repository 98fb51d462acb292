#include <utility>

#include "compat/c10d.h"
#include "device/collectives.h"
#include "device/exchange_control.h"

namespace accelerate::device {
namespace {

// How long exchanges that nobody waits for any more may take.
constexpr std::chrono::milliseconds kDrainLimit{1000};

c10d::ReduceOp reduce_op(Combine how) {
  switch (how) {
    case Combine::kMin:
      return c10d::ReduceOp::MIN;
    case Combine::kMax:
      return c10d::ReduceOp::MAX;
    case Combine::kSum:
      break;
  }
  return c10d::ReduceOp::SUM;
}

class C10dWork final : public CollectiveWork {
 public:
  explicit C10dWork(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  void wait() override { work_->wait(); }
  bool is_done() const override { return work_->isCompleted(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

// Calls the backend itself, not through a ProcessGroup: that dispatches by
// device, which a Communicator has done, and keeps the tensor of its barrier in
// a static variable, which a group of another thread (a save beside the
// training) writes at the same time.
class C10dCollectives final : public Collectives {
 public:
  C10dCollectives(c10::intrusive_ptr<c10d::Backend> backend,
                  std::shared_ptr<ExchangeControl> control)
      : backend_(std::move(backend)), control_(std::move(control)) {}
  ~C10dCollectives() override {
    if (control_) control_->end(kDrainLimit);
  }

  std::string name() const override { return backend_->getBackendName(); }

  CollectiveWorkPtr broadcast(at::Tensor tensor, int root) override {
    std::vector<at::Tensor> row{std::move(tensor)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return begun(backend_->broadcast(row, options));
  }
  CollectiveWorkPtr all_reduce(at::Tensor tensor, Combine how) override {
    std::vector<at::Tensor> row{std::move(tensor)};
    c10d::AllreduceOptions options;
    options.reduceOp = reduce_op(how);
    return begun(backend_->allreduce(row, options));
  }
  CollectiveWorkPtr all_gather(at::Tensor output, at::Tensor input) override {
    return begun(backend_->_allgather_base(output, input, c10d::AllgatherOptions()));
  }
  CollectiveWorkPtr reduce_scatter(at::Tensor output, at::Tensor input, Combine how) override {
    c10d::ReduceScatterOptions options;
    options.reduceOp = reduce_op(how);
    return begun(backend_->_reduce_scatter_base(output, input, options));
  }
  CollectiveWorkPtr scatter(at::Tensor output, std::vector<at::Tensor> inputs, int root) override {
    std::vector<at::Tensor> row{std::move(output)};
    std::vector<std::vector<at::Tensor>> input_rows;
    if (!inputs.empty()) input_rows.push_back(std::move(inputs));
    c10d::ScatterOptions options;
    options.rootRank = root;
    return begun(backend_->scatter(row, input_rows, options));
  }
  CollectiveWorkPtr barrier() override { return begun(backend_->barrier(c10d::BarrierOptions())); }

  c10::intrusive_ptr<c10d::Backend> c10d() const override { return backend_; }
  std::shared_ptr<ExchangeControl> control() const override { return control_; }

 private:
  static CollectiveWorkPtr begun(c10::intrusive_ptr<c10d::Work> work) {
    return std::make_unique<C10dWork>(std::move(work));
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::shared_ptr<ExchangeControl> control_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> Collectives::c10d() const { return {}; }

std::shared_ptr<ExchangeControl> Collectives::control() const { return nullptr; }

std::unique_ptr<Collectives> collectives_of(c10::intrusive_ptr<c10d::Backend> backend,
                                            std::shared_ptr<ExchangeControl> control) {
  return std::make_unique<C10dCollectives>(std::move(backend), std::move(control));
}

}  // namespace accelerate::device
