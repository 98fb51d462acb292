// Tensors without memory whose values can be made later: what is done to them is recorded, or they
// have a source.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace accelerate::compat {

// Operations in the order in which they were called, on tensors of one thread.
class DeferredRecord;

// While it lives, floating-point tensors that this thread makes out of nothing are deferred: they
// are on the meta device, and so is what is computed of them. Those that follow it take up its
// record, unless something has drawn random numbers in between or its tensors are gone.
class DeferScope {
 public:
  DeferScope();
  ~DeferScope();
  DeferScope(const DeferScope&) = delete;
  DeferScope& operator=(const DeferScope&) = delete;
  // Of this thread.
  static bool is_open();

 private:
  c10::impl::IncludeDispatchKeyGuard records_;
};

// Ordinary tensors in spite of a scope, for what works for the one who is in it.
class OrdinaryTensors {
 public:
  OrdinaryTensors();

 private:
  c10::impl::ExcludeDispatchKeyGuard past_records_;
};

bool is_deferred(const at::Tensor& tensor);
// Null for tensors that have a source.
std::shared_ptr<DeferredRecord> record_of(const at::Tensor& deferred);
// From now on the values of the deferred tensor are those of `source`, which has its shape, cast to
// its type; of all views of its memory that are all of it too.
void set_deferred_source(const at::Tensor& deferred, at::Tensor source);
// Undefined where it has none.
at::Tensor deferred_source(const at::Tensor& deferred);
// A deferred tensor like `tensor` in this type and with this source.
at::Tensor make_deferred(const at::Tensor& like, at::ScalarType dtype, at::Tensor source);

// What random operations of a record start from: states of generators, as bytes. They may be
// written over, by those of another rank.
std::vector<at::Tensor> random_states_of(DeferredRecord& record);
// Operations, their order, and shapes: the same where the same program was recorded.
std::string digest_of(const DeferredRecord& record);

// Has the recorded operations that matter done, once, and calls `take` for each of `tensors`, which
// are of this record, with its values, as early as possible: no more than is needed for the rest is
// in memory at a time, and values are gone when nobody holds them any more. Generators are left as
// the operations leave them where nothing has drawn from them since; else as they were. Throws
// UsageError where something that was read has changed since.
void replay(DeferredRecord& record, const std::vector<at::Tensor>& tensors,
            const std::function<void(size_t index, const at::Tensor& values)>& take);

}  // namespace accelerate::compat
