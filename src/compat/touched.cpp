#include "compat/touched.h"

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <utility>

#include "accelerate/errors.h"
#include "compat/touched_dispatch.h"

namespace accelerate::compat {
namespace {

// libtorch can set this flag but not clear it. An explicit instantiation may name private members.
bool& refuses_pointers(c10::StorageImpl& storage);

template <bool c10::StorageImpl::*Flag>
struct OpenFlag {
  friend bool& refuses_pointers(c10::StorageImpl& storage) { return storage.*Flag; }
};
template struct OpenFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

// As `like` with the key of touched tensors.
c10::intrusive_ptr<c10::TensorImpl> with_key(const at::Tensor& like, c10::Storage storage) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage),
                                                   like.key_set().add(kTouchedKey), like.dtype());
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  return impl;
}

}  // namespace

TouchedStorage::TouchedStorage(std::string name, int64_t bytes, c10::Device device,
                               std::weak_ptr<TouchKeeper> keeper, size_t unit,
                               std::unique_ptr<const CastSource> cast)
    : c10::StorageImpl(use_byte_size_t(), bytes, at::DataPtr(nullptr, device), nullptr,
                       /*resizable=*/false),
      name_(std::move(name)),
      device_(device),
      keeper_(std::move(keeper)),
      unit_(unit),
      cast_(std::move(cast)) {
  get_extra_meta().custom_data_ptr_error_msg_ =
      name_ +
      " is in pieces on several ranks, and something reads its memory without an operation of "
      "libtorch; use operations, or read inside of Accelerator::full_parameters()";
  take_memory();
}

void TouchedStorage::give_memory(at::DataPtr memory) {
  refuses_pointers(*this) = false;
  set_data_ptr_noswap(std::move(memory));  // which looks at the flag
  has_memory_ = true;
}

void TouchedStorage::take_memory() {
  refuses_pointers(*this) = true;
  set_data_ptr_noswap(at::DataPtr(nullptr, device_));
  has_memory_ = false;
}

PlainMode::PlainMode() : past_touches_(kTouchedKey) {}

at::Tensor make_touched(TouchedStoragePtr storage, at::IntArrayRef sizes, at::ScalarType dtype) {
  register_touched_key();
  const at::Tensor like = at::empty({0}, at::TensorOptions(storage->device()).dtype(dtype));
  auto impl = with_key(like, c10::Storage(std::move(storage)));
  impl->set_sizes_contiguous(sizes);
  return at::Tensor(std::move(impl));
}

void replace_data(at::Tensor& parameter, const at::Tensor& data) {
  const c10::impl::ExcludeDispatchKeyGuard past_touches(kTouchedKey);
  if (parameter.is_meta()) {  // set_data() keeps the kind of device; there is no graph to mind
    parameter.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
  } else {
    parameter.set_data(data);
  }
}

void adopt_cast(at::Tensor& result, TouchedStoragePtr storage) {
  c10::StorageImpl* plain = result.storage().unsafeGetStorageImpl();
  storage->give_memory(plain->set_data_ptr(at::DataPtr(nullptr, plain->device())));
  auto impl = with_key(result, c10::Storage(std::move(storage)));
  result.unsafeGetTensorImpl()->shallow_copy_from(impl);
}

at::Tensor untouched_alias(const at::Tensor& tensor) {
  const c10::impl::ExcludeDispatchKeyGuard past_touches(kTouchedKey);
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), tensor.strides(), [](void*) {},
      at::TensorOptions(tensor.device()).dtype(tensor.scalar_type()));
}

TouchedStorage* touched_storage(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kTouchedKey) || !tensor.has_storage()) {
    return nullptr;
  }
  return dynamic_cast<TouchedStorage*>(
      tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

Touch::Touch(at::ArrayRef<at::Tensor> tensors, const char* name) {
  for (const at::Tensor& tensor : tensors) add(tensor);
  if (!groups_.empty()) begin({.name = name});
}

Touch::~Touch() {
  for (size_t i = 0; i < held_; ++i) groups_[i].keeper->let_go(groups_[i].storages);
}

void Touch::add(const at::Tensor& tensor) {
  TouchedStorage* storage = touched_storage(tensor);
  if (storage == nullptr) return;
  for (Group& group : groups_) {
    if (std::ranges::find(group.storages, storage) != group.storages.end()) return;
  }
  std::shared_ptr<TouchKeeper> keeper = storage->keeper().lock();
  if (!keeper) {
    throw UsageError({.what = storage->name() +
                              " was in pieces on several ranks, and the model that kept them is "
                              "gone",
                      .where = "parameters",
                      .hint = "keep the accelerator and its prepared model, or build the module "
                              "anew and load a checkpoint"});
  }
  for (Group& group : groups_) {
    if (group.keeper != keeper) continue;
    group.storages.push_back(storage);
    return;
  }
  groups_.push_back({.keeper = std::move(keeper), .storages = {storage}});
}

void Touch::begin(const TouchingOperation& operation) {
  try {
    for (const Group& group : groups_) {
      group.keeper->hold(group.storages, operation);
      ++held_;
    }
  } catch (...) {
    for (size_t i = 0; i < held_; ++i) groups_[i].keeper->let_go(groups_[i].storages);
    held_ = 0;
    throw;
  }
}

}  // namespace accelerate::compat
