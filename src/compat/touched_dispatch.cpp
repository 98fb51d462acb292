#include "compat/touched_dispatch.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compat/touched.h"

namespace accelerate::compat {

namespace {

// What an operation does to its arguments, as far as it matters here.
struct OperationTraits {
  // False: it looks at shapes and the like only, makes views, or runs other operations, which ask
  // for themselves.
  bool uses_values = true;
  bool moves_memory = false;
  bool casts = false;
  std::vector<size_t> written{};  // numbers of arguments
};

// They neither read nor write the values of the tensors that they are called on.
constexpr std::array<std::string_view, 13> kControls = {"aten::_backward",
                                                        "aten::requires_grad_",
                                                        "aten::retain_grad",
                                                        "aten::retains_grad",
                                                        "aten::is_leaf",
                                                        "aten::output_nr",
                                                        "aten::_version",
                                                        "aten::data",
                                                        "aten::is_same_size",
                                                        "aten::size",
                                                        "aten::stride",
                                                        "aten::record_stream",
                                                        "aten::_has_compatible_shallow_copy_type"};
constexpr std::array<std::string_view, 5> kMovers = {
    "aten::set_data", "aten::set_", "aten::resize_", "aten::resize_as_", "aten::_resize_output_"};

template <size_t Size>
bool is_among(std::string_view name, const std::array<std::string_view, Size>& names) {
  return std::ranges::find(names, name) != names.end();
}

// "empty_like", "new_zeros": the tensor gives them shape and dtype only.
bool only_looks_like(std::string_view name) {
  return name.ends_with("_like") || name.starts_with("aten::new_");
}

OperationTraits read_traits(const c10::FunctionSchema& schema) {
  const std::string& name = schema.name();
  OperationTraits traits;
  if (is_among(name, kControls) || only_looks_like(name)) {
    traits.uses_values = false;
    return traits;
  }
  traits.moves_memory = is_among(name, kMovers);
  traits.casts = name == "aten::_to_copy";
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) traits.written.push_back(i);
  }
  // What returns its argument, or a part of it, makes a view; where it has to copy instead, the
  // operation that copies is another one.
  const bool returns_argument = std::ranges::any_of(
      schema.returns(), [](const c10::Argument& result) { return result.alias_info() != nullptr; });
  traits.uses_values = !(returns_argument && traits.written.empty());
  return traits;
}

const OperationTraits& traits_of(const c10::FunctionSchema& schema) {
  // Schemas live as long as their operations, which are not unregistered while they run.
  static thread_local std::unordered_map<const c10::FunctionSchema*, OperationTraits> known;
  const auto [place, is_new] = known.try_emplace(&schema);
  if (is_new) place->second = read_traits(schema);
  return place->second;
}

// Whether this thread is in an operation that autocast may have cast for.
thread_local bool in_autocast = false;

// While autocast works on touched tensors: its cache would keep all weights, cast, for the length
// of its scope.
class AutocastScope {
 public:
  explicit AutocastScope(bool is_enabled)
      : was_in_(in_autocast), cached_(is_enabled && at::autocast::is_autocast_cache_enabled()) {
    in_autocast = in_autocast || is_enabled;
    if (cached_) at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastScope() {
    in_autocast = was_in_;
    if (cached_) at::autocast::set_autocast_cache_enabled(true);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool was_in_;
  bool cached_;
};

bool autocasts(c10::DeviceType kind) {
  return at::autocast::is_autocast_available(kind) && at::autocast::is_autocast_enabled(kind);
}

}  // namespace

// One call of an operation on touched tensors.
class TouchedOperation {
 public:
  static void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const c10::DispatchKeySet below =
        keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kTouchedKey);
    const OperationTraits& traits = traits_of(op.schema());
    if (!traits.uses_values) {
      op.redispatchBoxed(below, stack);
      return;
    }
    const size_t first = stack->size() - op.schema().arguments().size();
    Touch touch;
    for (size_t i = first; i < stack->size(); ++i) add((*stack)[i], touch);
    if (touch.groups_.empty()) {  // an empty list of such tensors, a storage of somebody else's
      op.redispatchBoxed(below, stack);
      return;
    }
    TouchingOperation operation{.name = op.schema().name(), .moves_memory = traits.moves_memory};
    for (const size_t i : traits.written) {
      if (TouchedStorage* written = first_touched((*stack)[first + i])) operation.written = written;
    }
    touch.begin(operation);

    TouchedStorage& some = *touch.groups_[0].storages[0];
    const bool autocast = autocasts(some.device().type());
    const AutocastScope scope(autocast);
    std::optional<at::Tensor> cast;
    if (traits.casts && in_autocast && at::GradMode::is_enabled() && some.cast() == nullptr) {
      cast = (*stack)[first].toTensor();
    }
    if (autocast) {  // it casts in operations of its own, which must be seen
      op.redispatchBoxed(below, stack);
    } else {
      const c10::impl::ExcludeDispatchKeyGuard held_already(kTouchedKey);
      op.redispatchBoxed(below, stack);
    }
    if (!cast) return;
    at::Tensor& result = stack->back().toTensor();
    if (result.requires_grad() && result.scalar_type() != cast->scalar_type() &&
        result.device() == cast->device()) {
      touch.groups_[0].keeper->note_cast(some, *cast, result);
    }
  }

 private:
  static void add(const c10::IValue& value, Touch& touch) {
    if (value.isTensor()) {
      touch.add(value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) add(element, touch);
    }
  }

  static TouchedStorage* first_touched(const c10::IValue& value) {
    if (value.isTensor()) return touched_storage(value.toTensor());
    if (!value.isList()) return nullptr;
    for (const c10::IValue& element : value.toListRef()) {
      if (TouchedStorage* storage = first_touched(element)) return storage;
    }
    return nullptr;
  }
};

void register_touched_key() {
  // Never taken back: tensors may outlive everything else.
  static torch::Library* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kTouchedKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&TouchedOperation::run>());
    return made;
  }();
  static_cast<void>(library);
}

}  // namespace accelerate::compat
