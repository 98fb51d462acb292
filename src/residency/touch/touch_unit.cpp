#include "residency/touch/touch_unit.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "accelerate/errors.h"
#include "residency/flat_unit.h"

namespace accelerate::residency {
namespace {

std::vector<int64_t> numels_of(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> numels;
  for (const at::Tensor& tensor : tensors) numels.push_back(tensor.numel());
  return numels;
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Does nothing on the stream that the memory was made on.
void record_use(const at::DataPtr& memory, const c10::Stream& stream) {
  c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(memory, stream);
}

}  // namespace

TouchUnit::TouchUnit(UnitParameters parameters, size_t number, int rank, int world_size,
                     at::ScalarType whole_dtype, c10::Device device,
                     const std::weak_ptr<compat::TouchKeeper>& keeper)
    : parameters_(std::move(parameters)),
      layout_(numels_of(parameters_.parameters), world_size),
      rank_(rank),
      whole_dtype_(whole_dtype) {
  const compat::PlainMode plain;
  const at::Tensor& first = parameters_.parameters[0];
  shard_ = at::zeros({layout_.shard_numel()}, first.options().device(device).requires_grad(false));
  for (size_t i = 0; i < parameters_.parameters.size(); ++i) {
    at::Tensor& parameter = parameters_.parameters[i];
    const auto piece = layout_.piece(i, rank).value_or(UnitLayout::Piece{});
    at::Tensor own = part_of(shard_, piece.place, {piece.numel()});
    if (!parameter.is_meta()) {
      own.copy_(parameter.detach().reshape({-1}).narrow(0, piece.begin, piece.numel()));
    }
    own.set_requires_grad(parameter.requires_grad());
    pieces_.push_back(std::move(own));

    const int64_t bytes = parameter.numel() * static_cast<int64_t>(c10::elementSize(whole_dtype));
    auto storage = c10::make_intrusive<compat::TouchedStorage>(
        "parameter '" + parameters_.names[i] + "'", bytes, device, keeper, number);
    compat::replace_data(parameter, compat::make_touched(storage, parameter.sizes(), whole_dtype));
    storages_.push_back(std::move(storage));
  }
}

void TouchUnit::require_in_place(const char* where) const {
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (compat::touched_storage(parameters_.parameters[i]) == storages_[i].get()) continue;
    throw UsageError({.what = "parameter '" + parameters_.names[i] +
                              "' has got other memory than its unit has: updates would not reach "
                              "the module",
                      .where = where,
                      .hint = "move, cast and torch::load the module before prepare(); "
                              "load_state() may come later"});
  }
}

std::function<void()> TouchUnit::gather_into(const at::Tensor& row, ShardGatherer& gatherer) const {
  return gatherer.begin({.unit = storages_[0]->unit(),
                         .name = parameters_.name,
                         .whole = row,
                         .shard = shard_.to(row.scalar_type())});
}

void TouchUnit::begin_gather(ShardGatherer& gatherer) {
  const compat::PlainMode plain;
  at::Tensor row = at::empty({layout_.whole_numel()}, shard_.options().dtype(whole_dtype_));
  finish_ = gather_into(row, gatherer);
  row_ = std::move(row);
  if (!row_.is_cpu()) made_on_ = current_stream(row_.device());
  state_ = State::kComing;
}

at::DataPtr TouchUnit::memory_at(int64_t begin) const {
  auto* memory = static_cast<char*>(row_.data_ptr()) + begin * row_.element_size();
  auto owner = std::make_unique<at::Tensor>(row_);
  return {memory, owner.release(), [](void* kept) { delete static_cast<at::Tensor*>(kept); },
          row_.device()};
}

void TouchUnit::finish_gather() {
  const compat::PlainMode plain;
  try {
    std::exchange(finish_, nullptr)();
  } catch (...) {
    release();
    throw;
  }
  for (size_t i = 0; i < storages_.size(); ++i) {
    storages_[i]->give_memory(memory_at(layout_.begin(i)));
  }
  state_ = State::kWhole;
  if (row_.is_cpu()) return;
  note_ready();
  record_use(row_.storage().data_ptr(), *ready_on_);
}

void TouchUnit::note_ready() {
  ready_on_ = current_stream(row_.device());
  if (!ready_) ready_.emplace(row_.device().type());
  ready_->record(*ready_on_);
}

void TouchUnit::use_on_current_stream() const {
  if (!ready_) return;
  const c10::Stream current = current_stream(row_.device());
  if (current == *ready_on_) return;
  ready_->block(current);
  record_use(row_.storage().data_ptr(), current);
}

void TouchUnit::use_on_current_stream(const compat::TouchedStorage& cast) const {
  if (ready_) record_use(cast.data_ptr(), current_stream(row_.device()));
}

void TouchUnit::release() noexcept {
  if (finish_) {
    try {
      const compat::PlainMode plain;
      std::exchange(finish_, nullptr)();
    } catch (...) {  // the next collective says it again
      finish_ = nullptr;
    }
  }
  for (const auto& weak : casts_) {
    if (const auto storage = weak.lock()) storage->take_memory();
  }
  casts_.clear();
  for (const auto& storage : storages_) storage->take_memory();
  row_.reset();
  made_on_.reset();
  ready_on_.reset();
  ready_.reset();
  state_ = State::kInPieces;
}

void TouchUnit::abandon() noexcept {
  finish_ = nullptr;
  release();
}

void TouchUnit::fill_cast(compat::TouchedStorage& storage) {
  const compat::PlainMode plain;
  const compat::CastSource& cast = *storage.cast();
  const at::Tensor values = compat::untouched_alias(cast.source).to(cast.dtype);
  c10::StorageImpl* made = values.storage().unsafeGetStorageImpl();
  storage.give_memory(made->set_data_ptr(at::DataPtr(nullptr, made->device())));
  note_cast(storage);
  if (ready_) note_ready();
}

void TouchUnit::note_cast(compat::TouchedStorage& storage) {
  casts_.emplace_back(compat::TouchedStoragePtr::reclaim_copy(&storage));
}

void TouchUnit::take_over_row() {
  const compat::PlainMode plain;
  const at::Tensor own = row_.narrow(0, rank_ * layout_.shard_numel(), layout_.shard_numel());
  if (whole_dtype_ == shard_.scalar_type()) {
    shard_.copy_(own);
  } else {
    shard_.copy_(with_written_values(shard_, own, shard_.to(whole_dtype_)));
  }
}

void TouchUnit::bump_versions() {
  for (const at::Tensor& parameter : parameters_.parameters) {
    parameter.unsafeGetTensorImpl()->bump_version();
  }
}

void TouchUnit::give_back(ShardGatherer& gatherer) {
  release();
  const compat::PlainMode plain;
  const at::Tensor row = at::empty({layout_.whole_numel()}, shard_.options());
  gather_into(row, gatherer)();
  for (size_t i = 0; i < parameters_.parameters.size(); ++i) {
    at::Tensor& parameter = parameters_.parameters[i];
    const at::Tensor values = row.narrow(0, layout_.begin(i), parameter.numel());
    compat::replace_data(parameter, values.view(parameter.sizes()).clone());
  }
}

}  // namespace accelerate::residency
