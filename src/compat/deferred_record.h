// What is known of deferred tensors.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compat/deferred.h"

namespace accelerate::compat {

// Between autograd and the backends, and used by nobody else: it belongs to an abandoned package.
inline constexpr c10::DispatchKey kDeferredKey = c10::DispatchKey::Fake;

void register_deferred_key();

// The memory that a deferred tensor and all views of it would have. Reading a pointer throws.
class DeferredStorage final : public c10::StorageImpl {
 public:
  DeferredStorage(std::shared_ptr<DeferredRecord> record, size_t number, int64_t bytes);

  const std::shared_ptr<DeferredRecord>& record() const { return record_; }
  size_t number() const { return number_; }  // in the record
  at::Tensor source{};

 private:
  std::shared_ptr<DeferredRecord> record_;
  size_t number_;
};

DeferredStorage* deferred_storage(const at::Tensor& tensor);

class DeferredRecord {
 public:
  // A deferred tensor, as it was when it was used.
  struct Place {
    size_t storage = 0;
    int64_t storage_bytes = 0;
    std::vector<int64_t> sizes{};
    std::vector<int64_t> strides{};
    int64_t offset = 0;
    at::ScalarType dtype = at::kFloat;
  };
  struct Operand {
    size_t argument = 0;
    std::optional<size_t> element{};  // of a list
    Place place{};
  };
  struct Ordinary {
    at::Tensor tensor;
    int64_t version = 0;
  };
  struct Operation {
    c10::OperatorHandle handle;
    std::vector<c10::IValue> arguments;  // nothing where an operand goes
    std::vector<Operand> operands{};
    std::vector<Ordinary> ordinary{};
    std::vector<size_t> written{};        // storages that were there before
    std::optional<size_t> overwritten{};  // the one of them that keeps nothing of what it held
    std::vector<Place> results{};         // new storages, in the order of the tensors returned
    // Where it draws random numbers.
    at::Generator generator{};
    at::Tensor state_before{};  // undefined: what the one before has left
  };

  size_t add_storage() { return storages_++; }
  // Fills in what it draws from.
  void add(Operation operation, const std::optional<at::Generator>& drawn);
  // Whether generators are where the latest random operation found them.
  bool goes_on() const;
  bool has_random() const { return !generators_.empty(); }

  std::vector<Operation>& operations() { return operations_; }
  const std::vector<Operation>& operations() const { return operations_; }
  // Those that were drawn from, with the states in which the operations found them last.
  std::vector<std::pair<at::Generator, at::Tensor>>& generators() { return generators_; }

 private:
  size_t storages_ = 0;
  std::vector<Operation> operations_;
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

// Of the tensor in `storage`.
DeferredRecord::Place place_of(const at::Tensor& tensor, const DeferredStorage& storage);

}  // namespace accelerate::compat
