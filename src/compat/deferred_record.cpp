#include "compat/deferred_record.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "accelerate/errors.h"

namespace accelerate::compat {
namespace {

constexpr const char* kNoValues =
    "this tensor was made inside of accelerate::init_empty_weights() and has no values yet; give "
    "its module to Accelerator::prepare() or accelerate::materialize() first";

at::Tensor state_of(at::Generator generator) {
  const OrdinaryTensors ordinary;
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

c10::intrusive_ptr<DeferredStorage> storage_like(const at::Tensor& tensor,
                                                 std::shared_ptr<DeferredRecord> record) {
  const size_t number = record->add_storage();
  return c10::make_intrusive<DeferredStorage>(std::move(record), number,
                                              static_cast<int64_t>(tensor.storage().nbytes()));
}

}  // namespace

DeferredStorage::DeferredStorage(std::shared_ptr<DeferredRecord> record, size_t number,
                                 int64_t bytes)
    : c10::StorageImpl(use_byte_size_t(), bytes, at::DataPtr(nullptr, c10::Device(c10::kMeta)),
                       nullptr, /*resizable=*/false),
      record_(std::move(record)),
      number_(number) {
  release_data_and_set_meta_custom_data_ptr_error_msg_(std::string(kNoValues));
}

DeferredStorage* deferred_storage(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kDeferredKey) || !tensor.has_storage()) {
    return nullptr;
  }
  return dynamic_cast<DeferredStorage*>(
      tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

DeferredRecord::Place place_of(const at::Tensor& tensor, const DeferredStorage& storage) {
  return {.storage = storage.number(),
          .storage_bytes = static_cast<int64_t>(storage.nbytes()),
          .sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .offset = tensor.storage_offset(),
          .dtype = tensor.scalar_type()};
}

void DeferredRecord::add(Operation operation, const std::optional<at::Generator>& drawn) {
  const OrdinaryTensors ordinary;
  if (drawn) {
    operation.generator = *drawn;
    at::Tensor state = state_of(*drawn);
    auto known = generators_.begin();
    while (known != generators_.end() && known->first != *drawn) ++known;
    if (known == generators_.end()) {
      generators_.emplace_back(*drawn, state.clone());
      operation.state_before = std::move(state);
    } else if (!known->second.equal(state)) {
      known->second = state.clone();
      operation.state_before = std::move(state);
    }
  }
  operations_.push_back(std::move(operation));
}

bool DeferredRecord::goes_on() const {
  const OrdinaryTensors ordinary;
  for (const auto& [generator, state] : generators_) {
    if (!state_of(generator).equal(state)) return false;
  }
  return true;
}

bool is_deferred(const at::Tensor& tensor) { return deferred_storage(tensor) != nullptr; }

std::shared_ptr<DeferredRecord> record_of(const at::Tensor& deferred) {
  const DeferredStorage* storage = deferred_storage(deferred);
  return storage == nullptr || storage->source.defined() ? nullptr : storage->record();
}

void set_deferred_source(const at::Tensor& deferred, at::Tensor source) {
  deferred_storage(deferred)->source = std::move(source);
}

at::Tensor deferred_source(const at::Tensor& deferred) {
  const DeferredStorage* storage = deferred_storage(deferred);
  return storage == nullptr ? at::Tensor() : storage->source;
}

at::Tensor make_deferred(const at::Tensor& like, at::ScalarType dtype, at::Tensor source) {
  const OrdinaryTensors ordinary;
  const at::TensorOptions options = at::TensorOptions(dtype).device(c10::Device(c10::kMeta));
  // As where there is memory: in another type it is new.
  const at::Tensor meta = dtype == like.scalar_type()
                              ? at::empty_strided(like.sizes(), like.strides(), options)
                              : at::empty(like.sizes(), options);
  auto storage = storage_like(meta, std::make_shared<DeferredRecord>());
  storage->source = std::move(source);
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                   meta.key_set().add(kDeferredKey), meta.dtype());
  impl->set_sizes_and_strides(meta.sizes(), meta.strides());
  return at::Tensor(std::move(impl));
}

std::vector<at::Tensor> random_states_of(DeferredRecord& record) {
  std::vector<at::Tensor> states;
  for (auto& operation : record.operations()) {
    if (operation.state_before.defined()) states.push_back(operation.state_before);
  }
  return states;
}

std::string digest_of(const DeferredRecord& record) {
  std::string text;
  for (const auto& operation : record.operations()) {
    text += operation.handle.schema().name();
    const auto add = [&](const DeferredRecord::Place& place) {
      text += ' ' + std::to_string(place.storage) + (place.dtype == at::kFloat ? "" : "?");
      for (const int64_t size : place.sizes) text += ',' + std::to_string(size);
    };
    for (const auto& operand : operation.operands) add(operand.place);
    for (const auto& result : operation.results) add(result);
    text += operation.state_before.defined() ? "*\n" : "\n";
  }
  return text;
}

OrdinaryTensors::OrdinaryTensors() : past_records_(kDeferredKey) {}

}  // namespace accelerate::compat
