// What becomes of operations on deferred tensors.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "accelerate/errors.h"
#include "compat/deferred_record.h"

namespace accelerate::compat {
namespace {

// The latest record of this thread: a scope that follows takes it up.
thread_local std::weak_ptr<DeferredRecord> latest_record;
// Of the scope that is open.
thread_local std::shared_ptr<DeferredRecord> open_record;

// After these a tensor holds nothing of what it held before.
constexpr std::array<std::string_view, 10> kOverwriting = {
    "aten::normal_", "aten::uniform_",     "aten::fill_",       "aten::zero_",
    "aten::copy_",   "aten::exponential_", "aten::log_normal_", "aten::cauchy_",
    "aten::random_", "aten::geometric_"};
// They change where a tensor is, and nothing of what it holds.
constexpr std::array<std::string_view, 3> kPlacing = {"aten::set_data", "aten::set_",
                                                      "aten::record_stream"};
constexpr std::array<std::string_view, 3> kReading = {"aten::_local_scalar_dense", "aten::equal",
                                                      "aten::item"};

template <size_t Size>
bool is_one_of(std::string_view name, const std::array<std::string_view, Size>& names) {
  return std::ranges::find(names, name) != names.end();
}

[[noreturn]] void refuse_deferred(const std::string& what, const std::string& where) {
  throw UsageError({.what = what,
                    .where = where,
                    .hint = "build what needs values outside of init_empty_weights(), or call "
                            "materialize(module) or prepare() first"});
}

std::optional<size_t> argument_named(const c10::FunctionSchema& schema, const char* name) {
  const auto index = schema.argumentIndexWithName(name);
  return index ? std::optional(static_cast<size_t>(*index)) : std::nullopt;
}

// Calls `visit(value, argument, element)` for each tensor among the arguments.
template <class Visit>
void for_each_tensor(std::vector<c10::IValue>& arguments, Visit visit) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor()) {
      at::Tensor replaced = visit(arguments[i].toTensor(), i, std::nullopt);
      if (replaced.defined()) arguments[i] = std::move(replaced);
    } else if (arguments[i].isTensorList()) {
      c10::List<at::Tensor> own;
      const auto list = arguments[i].toTensorVector();
      for (size_t k = 0; k < list.size(); ++k) {
        at::Tensor replaced = visit(list[k], i, k);
        own.push_back(replaced.defined() ? replaced : list[k]);
      }
      arguments[i] = std::move(own);
    }
  }
}

at::Tensor on_meta_like(const at::Tensor& tensor) {
  const OrdinaryTensors ordinary;
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::TensorOptions(tensor.scalar_type()).device(c10::Device(c10::kMeta)));
}

at::Tensor with_storage(const at::Tensor& meta, c10::intrusive_ptr<c10::StorageImpl> storage) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                   meta.key_set().add(kDeferredKey), meta.dtype());
  impl->set_storage_offset(meta.storage_offset());
  impl->set_sizes_and_strides(meta.sizes(), meta.strides());
  return at::Tensor(std::move(impl));
}

// One call.
class DeferredCall {
 public:
  static void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    DeferredCall call(op, *stack);
    if (!call.is_to_be_recorded() || !call.record()) call.pass(keys, stack);
  }

 private:
  DeferredCall(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op),
        schema_(op.schema()),
        stack_(stack),
        first_(stack.size() - schema_.arguments().size()),
        arguments_(stack.begin() + static_cast<int64_t>(first_), stack.end()) {
    for_each_tensor(arguments_, [&](const at::Tensor& tensor, size_t, std::optional<size_t>) {
      const DeferredStorage* storage = deferred_storage(tensor);
      has_tensors_ = has_tensors_ || tensor.defined();
      if (storage == nullptr) return at::Tensor();
      if (storage->source.defined()) has_source_ = true;
      if (record_ && record_ != storage->record()) mixes_ = true;
      record_ = storage->record();
      return at::Tensor();
    });
  }

  // Factories without tensors, and what works on deferred ones other than views.
  bool is_to_be_recorded() {
    const std::string& name = schema_.name();
    if (is_one_of(name, kPlacing)) return false;
    if (!record_) {
      device_ = argument_named(schema_, "device");
      if (has_tensors_ || !device_ || !open_record) return false;
      // torch::tensor({...}) writes to such memory by pointers.
      const auto device = arguments_[*device_].toOptional<c10::Device>();
      const bool is_plain = name == "aten::empty" && device && device->is_cpu();
      record_ = open_record;
      return !is_plain;
    }
    device_ = argument_named(schema_, "device");
    if (name.starts_with("aten::resize_")) {
      refuse_deferred("an empty tensor would get another size", name);
    }
    if (op_.hasTag(at::Tag::inplace_view)) return false;
    if (is_one_of(name, kReading))
      refuse_deferred("the values of an empty tensor are asked for", name);
    const bool returns_argument = std::ranges::any_of(
        schema_.returns(),
        [](const c10::Argument& result) { return result.alias_info() != nullptr; });
    return !(returns_argument && written().empty());  // not a view
  }

  std::vector<size_t> written() const {
    std::vector<size_t> written;
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      const c10::AliasInfo* alias = schema_.arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite()) written.push_back(i);
    }
    return written;
  }

  std::optional<at::Generator> drawn() const {
    if (!op_.hasTag(at::Tag::nondeterministic_seeded)) return std::nullopt;
    if (const auto index = argument_named(schema_, "generator")) {
      const auto own = arguments_[*index].toOptional<at::Generator>();
      if (own && own->defined()) return *own;
    }
    return at::detail::getDefaultCPUGenerator();
  }

  // Runs it on the meta device alone. False: it is one for ordinary tensors.
  bool record() {
    const std::string& name = schema_.name();
    if (mixes_ || has_source_) {
      refuse_deferred(has_source_ ? "an empty tensor that was loaded is used before it has values"
                                  : "empty tensors of two scopes meet in one operation",
                      name);
    }
    std::vector<c10::IValue> on_meta = arguments_;
    DeferredRecord::Operation operation{.handle = op_, .arguments = arguments_};
    const std::vector<size_t> written_arguments = written();
    for_each_tensor(
        on_meta, [&](const at::Tensor& tensor, size_t argument, std::optional<size_t> element) {
          if (!tensor.defined()) return at::Tensor();
          const bool is_written =
              std::ranges::find(written_arguments, argument) != written_arguments.end();
          if (const DeferredStorage* storage = deferred_storage(tensor)) {
            operation.operands.push_back(
                {.argument = argument, .element = element, .place = place_of(tensor, *storage)});
            if (is_written) operation.written.push_back(storage->number());
            stand_ins_.emplace_back(on_meta_like(tensor), tensor);
            return stand_ins_.back().first;
          }
          if (is_written) {
            refuse_deferred("the values of an empty tensor would be written to another one", name);
          }
          operation.ordinary.push_back(
              {.tensor = tensor, .version = tensor.is_inference() ? 0 : tensor._version()});
          return tensor.dim() == 0 || tensor.is_meta() ? at::Tensor() : on_meta_like(tensor);
        });
    note_overwritten(operation);
    if (device_) on_meta[*device_] = c10::Device(c10::kMeta);
    if (const auto pinned = argument_named(schema_, "pin_memory")) on_meta[*pinned] = c10::IValue();
    const bool is_factory = !has_tensors_;
    try {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      const OrdinaryTensors ordinary;
      op_.callBoxed(&on_meta);
    } catch (const c10::Error&) {
      if (is_factory) return false;  // there is no such operation for it
      throw;
    }
    if (is_factory && !std::ranges::all_of(on_meta, [](const c10::IValue& result) {
          return result.isTensor() && result.toTensor().is_floating_point() &&
                 result.toTensor().layout() == c10::kStrided;
        })) {
      return false;
    }
    for (c10::IValue& result : on_meta) adopt(result, operation);
    clear_operands(operation);
    record_->add(std::move(operation), drawn());
    stack_.erase(stack_.begin() + static_cast<int64_t>(first_), stack_.end());
    stack_.insert(stack_.end(), on_meta.begin(), on_meta.end());
    return true;
  }

  // Of operations that fill their first argument, whatever it held.
  void note_overwritten(DeferredRecord::Operation& operation) const {
    if (!is_one_of(schema_.name(), kOverwriting) || operation.written.empty()) return;
    const at::Tensor& filled = arguments_[0].toTensor();
    const DeferredStorage* storage = deferred_storage(filled);
    const auto is_of_it = [&](const DeferredRecord::Operand& operand) {
      return operand.place.storage == storage->number();
    };
    const bool is_all = storage != nullptr && filled.nbytes() == storage->nbytes() &&
                        filled.is_non_overlapping_and_dense();
    if (is_all && std::ranges::count_if(operation.operands, is_of_it) == 1) {
      operation.overwritten = storage->number();
    }
  }

  // What was made anew is deferred.
  void adopt(c10::IValue& result, DeferredRecord::Operation& operation) const {
    const auto adopted = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      const auto own = std::ranges::find_if(
          stand_ins_, [&](const auto& pair) { return pair.first.is_same(tensor); });
      if (own != stand_ins_.end()) return own->second;
      auto storage = c10::make_intrusive<DeferredStorage>(
          record_, record_->add_storage(), static_cast<int64_t>(tensor.storage().nbytes()));
      at::Tensor made = with_storage(tensor, storage);
      operation.results.push_back(place_of(made, *storage));
      return made;
    };
    if (result.isTensor()) {
      result = adopted(result.toTensor());
    } else if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : result.toTensorVector()) list.push_back(adopted(tensor));
      result = std::move(list);
    }
  }

  // The record must not hold the tensors whose storages hold it.
  static void clear_operands(DeferredRecord::Operation& operation) {
    for (const DeferredRecord::Operand& operand : operation.operands) {
      c10::IValue& argument = operation.arguments[operand.argument];
      if (!operand.element) {
        argument = c10::IValue();
      } else {
        c10::List<at::Tensor> without;
        const auto list = argument.toTensorVector();
        for (size_t k = 0; k < list.size(); ++k) {
          without.push_back(k == *operand.element ? at::Tensor() : list[k]);
        }
        argument = std::move(without);
      }
    }
  }

  void pass(c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
    // Numbers that are drawn before those that were put off would be others.
    if (op_.hasTag(at::Tag::nondeterministic_seeded) && open_record && open_record->has_random() &&
        deferred_is_default(drawn())) {
      refuse_deferred(
          "an ordinary tensor is filled at random after empty ones were, whose values "
          "would come first",
          schema_.name());
    }
    op_.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kDeferredKey),
                        stack);
  }

  static bool deferred_is_default(const std::optional<at::Generator>& drawn) {
    return drawn && *drawn == at::detail::getDefaultCPUGenerator();
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  size_t first_;
  std::vector<c10::IValue> arguments_;
  std::optional<size_t> device_;
  std::shared_ptr<DeferredRecord> record_;
  // What kernels of the meta device see, which look at pointers, and what it is for.
  std::vector<std::pair<at::Tensor, at::Tensor>> stand_ins_;
  bool has_tensors_ = false;
  bool has_source_ = false;
  bool mixes_ = false;
};

}  // namespace

void register_deferred_key() {
  // Never taken back: tensors may outlive everything else.
  static torch::Library* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kDeferredKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&DeferredCall::run>());
    return made;
  }();
  static_cast<void>(library);
}

DeferScope::DeferScope() : records_((register_deferred_key(), kDeferredKey)) {
  if (open_record) {
    throw UsageError({.what = "init_empty_weights() inside of another one of the same thread",
                      .where = "init_empty_weights",
                      .hint = "end the first one before"});
  }
  auto known = latest_record.lock();
  open_record = known && known->goes_on() ? known : std::make_shared<DeferredRecord>();
  latest_record = open_record;
}

DeferScope::~DeferScope() { open_record.reset(); }

bool DeferScope::is_open() { return open_record != nullptr; }

}  // namespace accelerate::compat
