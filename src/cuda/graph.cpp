#include "cuda/graph.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
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

// What is queued on `later` from now on waits for what was queued on `earlier`.
void put_in_order(c10::cuda::CUDAStream earlier, c10::cuda::CUDAStream later) {
  at::cuda::CUDAEvent event;
  event.record(earlier);
  event.block(later);
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

// libtorch's graph, and a way out of a recording that the driver refuses to end. libtorch itself
// then leaves the thread as if it were still recording: each random number throws, and memory is
// not given back.
class RecordedGraph : public at::cuda::CUDAGraph {
 public:
  // After a failure between capture_begin() and the end of capture_end().
  void abandon() {
    if (capture_ended_) return;
    for (auto& [generator, increment] : captured_generator_states_) leave_recording(*generator);
    c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_);
    c10::cuda::CUDACachingAllocator::releasePool(capture_dev_, mempool_id_);
    stop_host_pool(*at::getHostAllocator(at::kCUDA));
  }

 private:
  // Later versions of libtorch do so when a graph is destroyed.
  template <class State>
  static void leave_recording([[maybe_unused]] State& state) {
    if constexpr (requires { state.capturing_ = false; }) state.capturing_ = false;
  }
  // Earlier versions have no pools of host memory.
  template <class Allocator>
  void stop_host_pool([[maybe_unused]] Allocator& allocator) const {
    if constexpr (requires { allocator.end_allocate_to_pool(mempool_id_); }) {
      allocator.end_allocate_to_pool(mempool_id_);
      allocator.release_pool(mempool_id_);
    }
  }
};

class Graph final : public device::DeviceGraph {
 public:
  void record(const std::function<void()>& body) override {
    const auto stream = side_stream();
    const auto caller = c10::cuda::getCurrentCUDAStream();
    put_in_order(caller, stream);
    {
      const c10::cuda::CUDAStreamGuard guard(stream);
      // Thread-local: loaders copy batches on other threads meanwhile.
      graph_.capture_begin(pool_->id, cudaStreamCaptureModeThreadLocal);
      try {
        body();
        graph_.capture_end();
      } catch (...) {
        end_failed_capture();
        throw;
      }
    }
    // The recording itself has set up the state of random numbers on its stream.
    put_in_order(stream, caller);
  }

  void replay() override { graph_.replay(); }

 private:
  // The first error is the one to report: that the recording cannot be ended follows from it.
  void end_failed_capture() {
    try {
      if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None) {
        graph_.capture_end();
      }
    } catch (const c10::Error&) {
      (void)cudaGetLastError();  // abandon() does what is left to do
    }
    graph_.abandon();
  }

  std::shared_ptr<Pool> pool_ = shared_pool();
  RecordedGraph graph_;
};

}  // namespace

void on_side_stream(const std::function<void()>& body) {
  const auto caller = c10::cuda::getCurrentCUDAStream();
  const auto side = side_stream();
  put_in_order(caller, side);
  try {
    const c10::cuda::CUDAStreamGuard guard(side);
    body();
  } catch (...) {
    put_in_order(side, caller);  // what was queued still reads the caller's tensors
    throw;
  }
  put_in_order(side, caller);
}

std::unique_ptr<device::DeviceGraph> make_graph() { return std::make_unique<Graph>(); }

}  // namespace accelerate::cuda
