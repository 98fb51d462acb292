#include "cuda/graph.h"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>

namespace accelerate::cuda {
namespace {

// One for each device and thread: memory that one stream has cached is not for another.
c10::cuda::CUDAStream side_stream() {
  thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const c10::DeviceIndex device = c10::cuda::current_device();
  const auto found = streams.find(device);
  if (found != streams.end()) return found->second;
  return streams.emplace(device, c10::cuda::getStreamFromPool()).first->second;
}

// The memory of graphs, shared by all that live: one that no graph uses any more cannot be taken up
// again.
struct Pool {
  at::cuda::MempoolId_t id = at::cuda::graph_pool_handle();
};

std::shared_ptr<Pool> shared_pool() {
  thread_local std::weak_ptr<Pool> current;
  std::shared_ptr<Pool> pool = current.lock();
  if (!pool) {
    pool = std::make_shared<Pool>();
    current = pool;
  }
  return pool;
}

class Graph final : public compat::DeviceGraph {
 public:
  void record(const std::function<void()>& body) override {
    const auto stream = side_stream();
    // The memory of the graph's tensors is that of no other stream: the side stream must see what
    // came before, and the caller's stream what the recording allocated.
    const auto caller = c10::cuda::getCurrentCUDAStream();
    at::cuda::CUDAEvent before;
    before.record(caller);
    before.block(stream);
    const c10::cuda::CUDAStreamGuard guard(stream);
    // Thread-local: loaders copy batches on other threads meanwhile.
    graph_.capture_begin(pool_->id, cudaStreamCaptureModeThreadLocal);
    try {
      body();
    } catch (...) {
      end_failed_capture();
      throw;
    }
    graph_.capture_end();
  }

  void replay() override { graph_.replay(); }

 private:
  // The first error is the one to report: that the capture cannot be ended follows from it.
  void end_failed_capture() {
    try {
      graph_.capture_end();
    } catch (const c10::Error&) {
      (void)cudaGetLastError();
    }
  }

  std::shared_ptr<Pool> pool_ = shared_pool();
  at::cuda::CUDAGraph graph_;
};

}  // namespace

void on_side_stream(const std::function<void()>& body) {
  const auto caller = c10::cuda::getCurrentCUDAStream();
  const auto side = side_stream();
  at::cuda::CUDAEvent before;
  before.record(caller);
  before.block(side);
  {
    const c10::cuda::CUDAStreamGuard guard(side);
    body();
  }
  at::cuda::CUDAEvent after;
  after.record(side);
  after.block(caller);
}

std::unique_ptr<compat::DeviceGraph> make_graph() { return std::make_unique<Graph>(); }

}  // namespace accelerate::cuda
