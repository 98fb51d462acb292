// Collectives among the ranks of one job, on c10d: Gloo for CPU tensors, NCCL or Gloo for CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/work.h"

namespace c10 {
struct IValue;
}

namespace accelerate {

class ProcessState;
namespace comm {
struct CommunicatorAccess;
}

enum class ReduceOp { kSum, kMean, kMin, kMax };

// Which library moves CUDA tensors. CPU tensors always go through Gloo.
enum class CudaBackend { kNccl, kGloo };

struct ProcessGroupOptions {
  // How long a collective may wait for its peers before it fails. Unset: what
  // ACCELERATE_COLLECTIVE_TIMEOUT says, in seconds, else 30 minutes.
  std::optional<std::chrono::milliseconds> timeout{};
  // How long ranks wait for each other when the group is opened. Unset: what
  // ACCELERATE_RENDEZVOUS_TIMEOUT says, in seconds, else 10 minutes.
  std::optional<std::chrono::milliseconds> rendezvous_timeout{};
  // NCCL refuses two ranks on one GPU; Gloo takes them, through host memory.
  CudaBackend cuda_backend = CudaBackend::kNccl;
  // Before each collective compare operation, dtype and shape over all ranks, at the cost of one
  // more exchange. Also switched on by ACCELERATE_DEBUG_MODE=true.
  bool check_collectives = false;
};

// A group of ranks: all of the job, or a part of them, see split(). Every collective must be called
// by all its ranks, in the same order; one thread at a time. At world size 1 nothing is sent and
// results are the inputs.
//
// Where a peer is lost or the timeout passes, a collective throws CommError that names the
// operation, the ranks that did not arrive and what they did last; the group is then unusable on
// all ranks, and the tensors of that call are no longer written to. A collective that waits
// for a rank which has failed or ended does not wait for the timeout: it throws within seconds.
// With NCCL, for CUDA tensors, the calls return before the work is done: where a peer is lost, NCCL
// is aborted within seconds, and the next call of the library throws.
//
// Arguments that cannot be used are UsageError before anything is sent, and the group stays usable.
// A wrong argument on some ranks only makes the others wait, unless a call says otherwise. Errors
// carry the rank of the job, also in a group of a part of them.
// Calls block the host for CPU tensors; for CUDA tensors they queue on the current stream.
class ACCELERATE_EXPORT Communicator {
 public:
  // Opens the group. Collective: all ranks of `state`; blocks until all have joined, at most
  // `rendezvous_timeout`, then throws CommError that names the missing ranks. Several groups may
  // be opened in one process, in the same order on all ranks. With several ranks SIGPIPE is ignored
  // from here on, unless the program has a handler of its own.
  Communicator(const ProcessState& state, const ProcessGroupOptions& options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // In this group.
  int rank() const;
  int world_size() const;

  // In the job: this rank, how many there are, and those of this group in its order.
  int global_rank() const;
  int global_size() const;
  const std::vector<int>& global_ranks() const;

  // Groups of the ranks that give the same `color`, ordered by `key` and, where that is the same,
  // by their rank here. Null where `color` is negative. Collective over this group; blocks until
  // the new one is connected. All groups of a job share its time-outs and fail together: a rank
  // that is lost ends the collectives of all of them. They may be used in turn, in the same order
  // on all the ranks that they share, and may outlive this one. Throws UsageError if there are more
  // groups than about 60 at once.
  std::shared_ptr<Communicator> split(int color, int key = 0);

  // Returns when all ranks have called it.
  void barrier();

  // Overwrites `tensor` with that of `root`. Same shape and dtype on all ranks; any dtype, here
  // and wherever tensors are only moved.
  void broadcast(at::Tensor& tensor, int root = 0);

  // Replaces `tensor` by the elementwise reduction over all ranks. kMean of an integral tensor is
  // a UsageError: convert it first; so is any reduction of 16-bit or unsigned wide integers,
  // complex numbers and 8-bit floats. The sum of bools is "or". Sends 2 (n-1)/n times its size on
  // each rank.
  void all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);

  // The tensors of all ranks, in rank order. Same shape and dtype on all ranks. The results own
  // their memory.
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor);

  // The same where the ranks' tensors differ in their first dimension, which may be 0. Other
  // dimensions and dtype must agree: UsageError on all ranks alike if not. Costs one more exchange
  // and sends as many rows as the longest has.
  std::vector<at::Tensor> all_gather_ragged(const at::Tensor& tensor);

  // Reduces `tensor` over all ranks and returns this rank's part of it: the first dimension, which
  // world_size must divide, is cut in rank order.
  at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);

  // The same calls, begun and not waited for; see Work. Arguments are checked before they return,
  // and where ranks compare their calls (check_collectives) they meet there. kMean divides in
  // wait().
  Work broadcast_async(at::Tensor& tensor, int root = 0);
  Work all_reduce_async(at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  // Fills `output`, which is contiguous and has world_size times the elements of `tensor`, with
  // those of all ranks in rank order.
  Work all_gather_into_async(at::Tensor& output, const at::Tensor& tensor);
  // Fills `output`, which is contiguous, with this rank's part of the reduction of `tensor`, which
  // has world_size times as many elements.
  Work reduce_scatter_into_async(at::Tensor& output, const at::Tensor& tensor,
                                 ReduceOp op = ReduceOp::kSum);

  // Fills `output` on rank r from `inputs[r]` of `root`; `inputs` is read on `root` only. All have
  // the shape and dtype of `output`: UsageError on all ranks alike if not. Costs one more exchange.
  void scatter(at::Tensor& output, const std::vector<at::Tensor>& inputs, int root = 0);

  // Values of libtorch's own kind (numbers, strings, lists, maps, tensors), copied by value. One
  // that cannot be sent is a UsageError on all ranks alike, which names its rank. Callers include
  // <ATen/core/ivalue.h>.
  c10::IValue broadcast_object(const c10::IValue& object, int root = 0);
  std::vector<c10::IValue> all_gather_object(const c10::IValue& object);

  // Bytes as they are.
  std::string broadcast_bytes(std::string_view bytes, int root = 0);
  std::vector<std::string> all_gather_bytes(std::string_view bytes);

  // Runs `operation`, which communicates by itself (a backward pass that reduces gradients), and
  // turns a lost peer inside it into CommError that names `name`. Other exceptions are passed on
  // unchanged.
  void guard(std::string_view name, const std::function<void()>& operation);

  class ACCELERATE_HIDDEN Impl;

 private:
  friend struct comm::CommunicatorAccess;
  explicit Communicator(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;  // shared with collectives that are under way
};

}  // namespace accelerate
