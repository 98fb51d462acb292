#include "checkpoint/model/model_state.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "tensor/tensor_boxes.h"

namespace accelerate::checkpoint {
namespace {

[[noreturn]] void refuse_layout(const std::string& what, const std::string& hint) {
  throw UsageError({.what = what, .where = "ModelStrategy::layout", .hint = hint});
}

// What is said of one name counts for all names of that tensor.
void add_tied_names(const ModelStateDict& module_tensors, ModelState& state) {
  std::map<const void*, std::string> first_names;  // of tensors in pieces
  std::map<const void*, const TensorLayout*> layouts;
  for (const auto& item : module_tensors) {
    const auto found = state.layout.find(item.key());
    if (found != state.layout.end()) {
      layouts.emplace(item.value().unsafeGetTensorImpl(), &found->second);
    }
  }
  for (const auto& item : module_tensors) {
    const void* tensor = item.value().unsafeGetTensorImpl();
    const auto layout = layouts.find(tensor);
    if (layout == layouts.end()) continue;
    const auto [first, is_new] = first_names.emplace(tensor, item.key());
    if (!is_new) state.tied.emplace(item.key(), first->second);
    state.layout.emplace(item.key(), *layout->second);
  }
}

// No rank has to send anything for them.
void make_empty_ones_whole(ModelState& state) {
  std::erase_if(state.layout, [&](const auto& entry) {
    const auto& [name, layout] = entry;
    if (c10::multiply_integers(layout.shape) != 0) return false;
    state.tensors[name] = at::empty(layout.shape, state.tensors[name].options());
    state.tied.erase(name);
    return true;
  });
}

}  // namespace

void require_layout_fits(const ModelStateDict& tensors, const ModelLayout& layout) {
  for (const auto& [name, own] : layout) {
    const at::Tensor* held = tensors.find(name);
    if (held == nullptr) {
      refuse_layout(
          "the layout of a model names " + in_quotes(name) + ", which the model does not have",
          "use the names of get_state_dict()");
    }
    const auto is_inside = [&own = own](const TensorBox& box) { return fits(box, own.shape); };
    int64_t elements = 0;
    for (const TensorBox& box : own.boxes) elements += box.numel();
    if (std::ranges::all_of(own.boxes, is_inside) && elements == held->numel()) continue;
    refuse_layout("the layout of " + in_quotes(name) + " does not fit the " +
                      std::to_string(held->numel()) + " elements that this rank holds",
                  "name the boxes that master_of() of this tensor holds, one after the other");
  }
}

ModelState model_state(const torch::nn::Module& module, const ModelStrategy& strategy) {
  const ModelStateDict module_tensors = get_state_dict(module);
  ModelState state{.tensors = module_tensors, .layout = strategy.layout()};
  for (auto& item : state.tensors) item.value() = strategy.master_of(item.value());
  require_layout_fits(state.tensors, state.layout);
  add_tied_names(module_tensors, state);
  make_empty_ones_whole(state);
  return state;
}

}  // namespace accelerate::checkpoint
