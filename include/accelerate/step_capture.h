// Training steps as CUDA graphs: recorded once, then replayed with one call to the driver.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "accelerate/detail/owned_impl.h"
#include "accelerate/export.h"

namespace accelerate {

class Accelerator;

// For models that cache tensors between steps and may replace them, for example when a longer text
// comes. Keeps `tensor` alive for as long as the step that this thread is recording can be
// replayed, because the graph goes on reading it. Does nothing outside of a recording.
ACCELERATE_EXPORT void keep_for_replays(const at::Tensor& tensor);

struct CaptureOptions {
  // Steps of one kind that run as they are before one of that kind is recorded: lazy
  // initialisation and the choice of kernels happen in them. At least 11 where ranks exchange
  // gradients, whose buckets are chosen meanwhile.
  int warmup_steps = 3;
  // Kinds of steps that are kept; the least recently used one is dropped.
  size_t most_graphs = 8;
};

// A training step that is replayed as a CUDA graph:
//
//   auto step = accelerator.capture([&](const std::vector<at::Tensor>& in) {
//     optimizer.zero_grad();
//     auto loss = loss_of(model(in[0]), in[1]);
//     accelerator.backward(loss);
//     accelerator.clip_grad_norm_(model->parameters(), 1.0);
//     optimizer.step();
//     scheduler.step();
//     return std::vector<at::Tensor>{loss.detach()};
//   });
//   for (auto& batch : loader) losses += step({batch.data, batch.target})[0];
//
// A graph is kept for each kind of step: shapes, dtypes and strides of the inputs, which of them
// are defined, and, where gradients accumulate, the place in the window. Each call is one
// micro-batch: it opens accumulate() by itself where windows have several. What the step does on
// the host happens while it is recorded and not again, but for prepared schedulers and optimizers,
// which follow each replay: the learning rate is read from the device. Random numbers differ from
// replay to replay.
//
// The results are overwritten by the next call that replays the same graph: copy what must be kept.
// Gradients keep their memory: zero_grad() inside of the step sets them to zero.
//
// Under fp16 the graph itself checks whether gradients overflowed; the host learns it before the
// next replay of an update and is never more than one update ahead.
//
// Where a step cannot be recorded, on CPUs, where an input needs a gradient, and where Gloo
// exchanges the gradients of several ranks, all calls run the step as it is; fallback_reason() says
// why, and so does one line in the log. Through NCCL the exchange is part of the graph: all ranks
// then call it alike. Optimizers that can be recorded are SGD, Adam, AdamW and FlatAdamW.
// Exceptions of the step that are neither errors of this library nor of libtorch are passed on, and
// the next call tries again.
//
// A graph holds the addresses of what it reads, and every number that is not read from the device.
// All graphs are dropped, and steps warm up and are recorded again, after load_state(), when the
// state of an optimizer was replaced in any other way, and when its parameter groups or an option
// other than the learning rate have changed. Pass tensors that the model caches and may replace,
// such as tables that grow with the text, to keep_for_replays(). One thread at a time.
class ACCELERATE_EXPORT StepCapture {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Step = std::function<Tensors(const Tensors& inputs)>;

  // The accelerator must outlive it.
  StepCapture(Accelerator& accelerator, Step step, const CaptureOptions& options = {});
  ~StepCapture();
  StepCapture(StepCapture&&) noexcept;
  StepCapture& operator=(StepCapture&&) noexcept;

  // Does not wait for the device, except when a graph is dropped for another one.
  Tensors operator()(const Tensors& inputs);

  // Graphs that are kept now, and replays made so far.
  size_t graphs() const;
  int64_t replays() const;
  // Empty while nothing prevents recording.
  const std::string& fallback_reason() const;
  // Drops all graphs; later steps warm up and are recorded again.
  void reset();

 private:
  class ACCELERATE_HIDDEN Impl;
  detail::OwnedImpl<Impl> impl_;
};

}  // namespace accelerate
