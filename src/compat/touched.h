// Tensors whose values are in memory only while something touches them: the dispatcher asks for
// them before every operation, in forward and backward passes, on any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace accelerate::compat {

class TouchKeeper;

// What a storage that autocast's cast has filled is made of again: the values of `source`, in
// another dtype.
struct CastSource {
  at::Tensor source{};  // detached; has a TouchedStorage itself
  at::ScalarType dtype = at::kFloat;
  uint64_t version = 0;  // of the values, as the keeper counts them
};

// The memory of one such tensor and of all views of it. Without memory, reading a pointer throws
// c10::Error that names the tensor. Its keeper says when memory comes and goes.
class TouchedStorage final : public c10::StorageImpl {
 public:
  // `name` is "parameter 'a.weight'", for messages. `unit` is a number of the keeper's own.
  TouchedStorage(std::string name, int64_t bytes, c10::Device device,
                 std::weak_ptr<TouchKeeper> keeper, size_t unit,
                 std::unique_ptr<const CastSource> cast = nullptr);

  const std::string& name() const { return name_; }
  size_t unit() const { return unit_; }
  const std::weak_ptr<TouchKeeper>& keeper() const { return keeper_; }
  // Null for a parameter.
  const CastSource* cast() const { return cast_.get(); }

  bool has_memory() const { return has_memory_; }
  void give_memory(at::DataPtr memory);
  void take_memory();

 private:
  const std::string name_;
  const c10::Device device_;
  const std::weak_ptr<TouchKeeper> keeper_;
  const size_t unit_;
  const std::unique_ptr<const CastSource> cast_;
  bool has_memory_ = false;
};

using TouchedStoragePtr = c10::intrusive_ptr<TouchedStorage>;

// An operation that touches.
struct TouchingOperation {
  std::string_view name{};
  // One that it writes to; null if it only reads.
  const TouchedStorage* written = nullptr;
  // Whether it may change where the values of `written` lie.
  bool moves_memory = false;
};

// Brings values into memory, for some storages. Calls may come from several threads at once.
class TouchKeeper {
 public:
  virtual ~TouchKeeper() = default;
  // Returns with the values of `touched` in memory, each named once; they stay there until
  // let_go(). Where it throws nothing is held.
  virtual void hold(at::ArrayRef<TouchedStorage*> touched, const TouchingOperation& operation) = 0;
  virtual void let_go(at::ArrayRef<TouchedStorage*> touched) noexcept = 0;
  // While `storage` is held autocast has cast its tensor `source` to `result`, of which autograd
  // may keep as much as it likes: see adopt_cast().
  virtual void note_cast(TouchedStorage& storage, const at::Tensor& source, at::Tensor& result) = 0;
};

// Around what a keeper does in the middle of somebody's operation: no graph, no inference tensors,
// no touches.
struct PlainMode {
  PlainMode();

 private:
  c10::InferenceMode normal_{false};  // before the other, which it would undo
  at::NoGradGuard no_grad_;
  c10::impl::ExcludeDispatchKeyGuard past_touches_;
};

// A tensor of these sizes, contiguous, over a storage without memory.
at::Tensor make_touched(TouchedStoragePtr storage, at::IntArrayRef sizes, at::ScalarType dtype);
// Gives `parameter` another memory and dtype, as set_data() does, also where it is touched, and
// where it was on the meta device.
void replace_data(at::Tensor& parameter, const at::Tensor& data);
// Moves the memory of `result`, which nobody else has seen yet, to `storage`, which makes it a
// touched tensor. It keeps its place in autograd's graph.
void adopt_cast(at::Tensor& result, TouchedStoragePtr storage);
// A plain tensor over the memory that `tensor` has now: for the keeper, while it is there.
at::Tensor untouched_alias(const at::Tensor& tensor);

// Null for tensors that are not touched.
TouchedStorage* touched_storage(const at::Tensor& tensor);

// For what reads pointers without the dispatcher: has the values of the touched ones among
// `tensors` in memory while it lives. Undefined tensors pass.
class [[nodiscard]] Touch {
 public:
  Touch() = default;
  explicit Touch(at::ArrayRef<at::Tensor> tensors, const char* name);
  Touch(Touch&& other) noexcept = default;
  Touch& operator=(Touch&&) = delete;
  ~Touch();

 private:
  friend class TouchedOperation;
  void add(const at::Tensor& tensor);
  void begin(const TouchingOperation& operation);

  struct Group {
    std::shared_ptr<TouchKeeper> keeper{};
    c10::SmallVector<TouchedStorage*, 4> storages{};
  };
  c10::SmallVector<Group, 1> groups_;
  size_t held_ = 0;  // groups
};

}  // namespace accelerate::compat
