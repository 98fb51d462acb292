// How ranks exchange tensors of one kind of device: what a Communicator stands
// on.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Backend;
}

namespace accelerate::device {

class ExchangeControl;

enum class Combine { kSum, kMin, kMax };

// An exchange that has begun.
class CollectiveWork {
 public:
  CollectiveWork() = default;
  virtual ~CollectiveWork() = default;
  CollectiveWork(const CollectiveWork&) = delete;
  CollectiveWork& operator=(const CollectiveWork&) = delete;

  // Blocks until the result is there, or orders the current stream of the
  // device after it. Throws as compat::is_communication_failure() and
  // is_refusal() know it. Called once, or never.
  virtual void wait() = 0;
  virtual bool is_done() const = 0;
};
using CollectiveWorkPtr = std::unique_ptr<CollectiveWork>;

// The ranks of one group call alike, in the same order, one thread at a time.
// Calls begin an exchange and do not wait for other ranks. Tensors are dense,
// contiguous, not empty and on a device of this kind; they are kept until the
// exchange has ended. A work that is dropped does not stop it.
class Collectives {
 public:
  Collectives() = default;
  virtual ~Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  // Of the library that moves the data: "gloo", "nccl".
  virtual std::string name() const = 0;

  virtual CollectiveWorkPtr broadcast(at::Tensor tensor, int root) = 0;
  virtual CollectiveWorkPtr all_reduce(at::Tensor tensor, Combine how) = 0;
  // `output` has the elements of `input` once for each rank.
  virtual CollectiveWorkPtr all_gather(at::Tensor output, at::Tensor input) = 0;
  // `input` has the elements of `output` once for each rank. The output is
  // there after wait().
  virtual CollectiveWorkPtr reduce_scatter(at::Tensor output, at::Tensor input, Combine how) = 0;
  // `inputs` has one for each rank on `root`, and none elsewhere.
  virtual CollectiveWorkPtr scatter(at::Tensor output, std::vector<at::Tensor> inputs,
                                    int root) = 0;
  virtual CollectiveWorkPtr barrier() = 0;

  // The same ranks for libtorch's own reducer. Null where it cannot be used
  // with such devices.
  virtual c10::intrusive_ptr<c10d::Backend> c10d() const;

  // How exchanges are followed and ended whose wait() only orders a stream. Null where it blocks.
  virtual std::shared_ptr<ExchangeControl> control() const;
};

// Those that a backend of c10d makes. `control`, where there is one, is of the same exchanges; they
// are ended by it when the result is destroyed, in order unless one of them is stuck.
std::unique_ptr<Collectives> collectives_of(c10::intrusive_ptr<c10d::Backend> backend,
                                            std::shared_ptr<ExchangeControl> control = nullptr);

}  // namespace accelerate::device
