// Training steps as CUDA graphs: recorded once, then replayed with one call to the driver.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/detail/owned_impl.h"
#include "accelerate/export.h"
#include "accelerate/nested.h"

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

namespace detail {

// A nested value on its way through a StepCapture.
struct CapturedValue {
  std::vector<at::Tensor> tensors{};
  std::string kind{};                   // its structure, and all of it that is no tensor
  std::shared_ptr<const void> whole{};  // the value, for those who know its type
};

// Writes down what of a value is no tensor, so that values that differ in it have different texts.
struct KindWriter {
  std::string text{};

  void tensor(const NestedPath& path, const at::Tensor&) { place(path); }
  template <class T>
  void rows(const NestedPath& path, const std::vector<T>& values) {
    place(path);
    for (const auto& value : values) entry(T(value));
  }
  template <class T>
  void constant(const NestedPath& path, const T& value) {
    place(path);
    entry(value);
  }

 private:
  void place(const NestedPath& path) { text += '\n' + path.str() + ' '; }
  template <class T>
  void entry(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      text += std::to_string(value.size()) + ':' + value;
    } else {
      text.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
};

template <class V>
CapturedValue captured_value(const V& value, std::shared_ptr<const V> whole) {
  CapturedValue made{.whole = std::move(whole)};
  for_each_tensor(value, [&](const at::Tensor& tensor) { made.tensors.push_back(tensor); });
  KindWriter writer;
  for_each_leaf(value, writer);
  made.kind = std::move(writer.text);
  return made;
}

// The value with its tensors in their places.
template <class V>
V whole_value(const CapturedValue& from) {
  size_t next = 0;
  return map_tensors(*static_cast<const V*>(from.whole.get()),
                     [&](const at::Tensor&) { return from.tensors[next++]; });
}

}  // namespace detail

// A training step that is replayed as a CUDA graph:
//
//   auto step = accelerator.capture([&](const accelerate::Sample& batch) {
//     optimizer.zero_grad();
//     auto loss = loss_of(model(batch.data), batch.target);
//     accelerator.backward(loss);
//     auto norm = accelerator.clip_grad_norm_(model->parameters(), 1.0);
//     optimizer.step();
//     scheduler.step();
//     return std::pair(loss.detach(), norm);
//   });
//   for (auto& batch : loader) losses += step(batch).first;
//
// Batch and result are any nested values, see nested.h; a step from tensors to tensors makes a
// StepCapture, all others a CapturedStep. Parameters have one type: lambdas with `auto` take
// std::vector<at::Tensor>.
//
// A graph is kept for each kind of step: shapes, dtypes and strides of the inputs, which of them
// are defined, the values of all that is no tensor, and, where gradients accumulate, the place in
// the window. What of a result is no tensor is what the step returned when it was recorded. Each
// call is one micro-batch: it opens accumulate() by itself where windows have several. What the
// step does on the host happens while it is recorded and not again, but for prepared schedulers and
// optimizers, which follow each replay: the learning rate is read from the device. Random numbers
// differ from replay to replay.
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
// then call it alike. Optimizers that can be recorded are SGD, Adam and AdamW. Exceptions of
// the step that are neither errors of this library nor of libtorch are passed on, and the next call
// tries again.
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

  // What CapturedStep is made of.
  using NestedStep = std::function<detail::CapturedValue(const detail::CapturedValue& batch)>;
  StepCapture(Accelerator& accelerator, NestedStep step, const CaptureOptions& options);
  detail::CapturedValue run(const detail::CapturedValue& batch);

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

// The same for a step that takes a nested batch and returns a nested result. Movable.
template <Nested Batch, Nested Result>
class CapturedStep {
 public:
  using Step = std::function<Result(const Batch& batch)>;

  // The accelerator must outlive it.
  CapturedStep(Accelerator& accelerator, Step step, const CaptureOptions& options = {})
      : core_(accelerator, nested_step(std::move(step)), options) {}

  Result operator()(const Batch& batch) {
    const auto is_kept_by_the_caller = [](const Batch*) {};
    return detail::whole_value<Result>(core_.run(detail::captured_value(
        batch, std::shared_ptr<const Batch>(&batch, is_kept_by_the_caller))));
  }

  // See StepCapture.
  size_t graphs() const { return core_.graphs(); }
  int64_t replays() const { return core_.replays(); }
  const std::string& fallback_reason() const { return core_.fallback_reason(); }
  void reset() { core_.reset(); }

 private:
  static StepCapture::NestedStep nested_step(Step step) {
    return [step = std::move(step)](const detail::CapturedValue& batch) {
      auto result = std::make_shared<const Result>(step(detail::whole_value<Batch>(batch)));
      return detail::captured_value(*result, result);
    };
  }

  StepCapture core_;
};

namespace detail {

template <class Function>
struct CapturedStepOf;
template <class Result, class Batch>
struct CapturedStepOf<std::function<Result(Batch)>> {
  using type = CapturedStep<std::remove_cvref_t<Batch>, std::remove_cvref_t<Result>>;
};

}  // namespace detail

}  // namespace accelerate
