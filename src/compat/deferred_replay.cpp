// Recorded operations, done.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "accelerate/errors.h"
#include "compat/deferred_record.h"

namespace accelerate::compat {
namespace {

using Operation = DeferredRecord::Operation;
using Place = DeferredRecord::Place;

// What is to become of an operation.
enum class Fate {
  kLeftOut,  // nobody sees what it does
  kDrawn,    // the numbers alone that it draws matter
  kDone,
};

class Replay {
 public:
  Replay(DeferredRecord& record, const std::vector<at::Tensor>& tensors,
         const std::function<void(size_t, const at::Tensor&)>& take)
      : record_(record), take_(take) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const DeferredStorage& storage = *deferred_storage(tensors[i]);
      wanted_[storage.number()].push_back({i, place_of(tensors[i], storage)});
    }
    plan();
  }

  void run() {
    const auto& operations = record_.operations();
    std::vector<std::vector<size_t>> ends(operations.size());  // storages that are done after it
    for (const auto& [storage, last] : last_use_) ends[last].push_back(storage);
    for (const auto& [storage, tensors] : wanted_) {
      if (!last_use_.contains(storage)) give(storage);  // nothing was ever written to it
    }
    for (size_t i = 0; i < operations.size(); ++i) {
      if (fates_[i] == Fate::kLeftOut) continue;
      perform(operations[i], fates_[i]);
      for (const size_t storage : ends[i]) {
        give(storage);
        memory_.erase(storage);
      }
    }
  }

 private:
  // From the end: what an operation writes matters where somebody reads it later.
  void plan() {
    const auto& operations = record_.operations();
    fates_.assign(operations.size(), Fate::kLeftOut);
    std::set<size_t> live;
    for (const auto& [storage, tensors] : wanted_) live.insert(storage);
    for (size_t i = operations.size(); i-- > 0;) {
      const Operation& operation = operations[i];
      const auto is_live = [&](size_t storage) { return live.contains(storage); };
      const bool matters = std::ranges::any_of(operation.written, is_live) ||
                           std::ranges::any_of(operation.results, [&](const Place& result) {
                             return is_live(result.storage);
                           });
      if (!matters) {
        if (operation.generator.defined()) fates_[i] = Fate::kDrawn;
        continue;
      }
      fates_[i] = Fate::kDone;
      const auto touch = [&](size_t storage) { last_use_.try_emplace(storage, i); };
      for (const Place& result : operation.results) {
        touch(result.storage);
        live.erase(result.storage);
      }
      for (const auto& operand : operation.operands) {
        touch(operand.place.storage);
        live.insert(operand.place.storage);
      }
      if (operation.overwritten) live.erase(*operation.overwritten);
    }
  }

  at::Tensor tensor_at(const Place& place) {
    const auto [found, is_new] = memory_.try_emplace(place.storage);
    // Memory that nothing was written to is any memory; zeros are the same every time.
    if (is_new) found->second = at::zeros({place.storage_bytes}, at::kByte);
    return view_of(found->second, place);
  }
  static at::Tensor view_of(const at::Tensor& memory, const Place& place) {
    return at::empty({0}, memory.options().dtype(place.dtype))
        .set_(memory.storage(), place.offset, place.sizes, place.strides);
  }

  void perform(const Operation& operation, Fate fate) {
    if (operation.state_before.defined()) {
      at::Generator generator = operation.generator;
      const std::lock_guard lock(generator.mutex());
      generator.set_state(operation.state_before);
    }
    for (const auto& [tensor, version] : operation.ordinary) {
      if (tensor.is_inference() || tensor._version() == static_cast<uint32_t>(version)) continue;
      throw UsageError({.what = "a tensor from which " + operation.handle.schema().name() +
                                " makes values of an empty one was changed since",
                        .where = "prepare",
                        .hint = "leave it as it is until prepare() or materialize()"});
    }
    std::vector<c10::IValue> stack = operation.arguments;
    for (const auto& operand : operation.operands) {
      // Numbers that are drawn do not depend on what is there.
      at::Tensor own = fate == Fate::kDone ? tensor_at(operand.place) : scratch_for(operand.place);
      if (!operand.element) {
        stack[operand.argument] = std::move(own);
        continue;
      }
      auto list = stack[operand.argument].toTensorVector();
      list[*operand.element] = std::move(own);
      stack[operand.argument] = std::move(list);
    }
    operation.handle.callBoxed(&stack);
    if (fate == Fate::kDone) keep_results(operation, stack);
  }

  static at::Tensor scratch_for(const Place& place) {
    return view_of(at::zeros({place.storage_bytes}, at::kByte), place);
  }

  void keep_results(const Operation& operation, const std::vector<c10::IValue>& results) {
    if (operation.results.empty()) return;
    size_t next = 0;
    const auto keep = [&](const at::Tensor& tensor) {
      if (!tensor.defined() || next == operation.results.size()) return;
      const Place& place = operation.results[next++];
      at::Tensor bytes = at::empty({0}, tensor.options().dtype(at::kByte));
      const bool fits = tensor.scalar_type() == place.dtype &&
                        static_cast<int64_t>(tensor.storage().nbytes()) >= place.storage_bytes &&
                        tensor.sizes() == at::IntArrayRef(place.sizes) &&
                        tensor.strides() == at::IntArrayRef(place.strides) &&
                        tensor.storage_offset() == place.offset;
      if (fits) {
        memory_[place.storage] = bytes.set_(tensor.storage(), 0, {place.storage_bytes}, {1});
      } else {
        tensor_at(place).copy_(tensor);
      }
    };
    for (const c10::IValue& result : results) {
      if (result.isTensor()) keep(result.toTensor());
      if (!result.isTensorList()) continue;
      for (const at::Tensor& tensor : result.toTensorVector()) keep(tensor);
    }
  }

  void give(size_t storage) {
    const auto found = wanted_.find(storage);
    if (found == wanted_.end()) return;
    for (const auto& [index, place] : found->second) take_(index, tensor_at(place));
  }

  DeferredRecord& record_;
  const std::function<void(size_t, const at::Tensor&)>& take_;
  std::map<size_t, std::vector<std::pair<size_t, Place>>> wanted_;  // by storage
  std::vector<Fate> fates_;
  std::map<size_t, size_t> last_use_;    // of storages, by number of the operation
  std::map<size_t, at::Tensor> memory_;  // bytes
};

// Puts generators back where they were, unless they are where the record found them.
class KeptGenerators {
 public:
  explicit KeptGenerators(DeferredRecord& record) {
    for (auto& [generator, found] : record.generators()) {
      const std::lock_guard lock(generator.mutex());
      at::Tensor state = generator.get_state();
      if (!state.equal(found)) kept_.emplace_back(generator, std::move(state));
    }
  }
  ~KeptGenerators() {
    for (auto& [generator, state] : kept_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }
  KeptGenerators(const KeptGenerators&) = delete;
  KeptGenerators& operator=(const KeptGenerators&) = delete;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> kept_;
};

}  // namespace

void replay(DeferredRecord& record, const std::vector<at::Tensor>& tensors,
            const std::function<void(size_t index, const at::Tensor& values)>& take) {
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  const OrdinaryTensors ordinary;
  const KeptGenerators kept(record);
  Replay(record, tensors, take).run();
}

}  // namespace accelerate::compat
