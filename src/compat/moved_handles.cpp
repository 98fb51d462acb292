#include "compat/moved_handles.h"

#include <ATen/core/grad_mode.h>
#include <malloc.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "accelerate/errors.h"

namespace accelerate::compat {
namespace {

using Dictionary = torch::OrderedDict<std::string, at::Tensor>;
using DictionaryMember = Dictionary torch::nn::Module::*;

// Module::buffers_ is private; an explicit instantiation may name it.
DictionaryMember buffers_of_module();
template <DictionaryMember member>
struct NamedMember {
  friend DictionaryMember buffers_of_module() { return member; }
};
template struct NamedMember<&torch::nn::Module::buffers_>;

struct ProtectedMembers : torch::nn::Module {
  static DictionaryMember parameters() { return &ProtectedMembers::parameters_; }
};

std::vector<DictionaryMember> dictionaries() {
  return {ProtectedMembers::parameters(), buffers_of_module()};
}

// With the name that each has in the whole.
std::vector<std::pair<std::string, torch::nn::Module*>> modules_of(torch::nn::Module& root) {
  std::vector<std::pair<std::string, torch::nn::Module*>> all{{"", &root}};
  // Of children alone: the root may not be held by a std::shared_ptr yet.
  for (const auto& item : root.named_children()) {
    for (auto& [name, module] : modules_of(*item.value())) {
      all.emplace_back(name.empty() ? item.key() : item.key() + "." + name, module);
    }
  }
  return all;
}

// Bytes of the object at `begin`, which is at the start of a block of malloc's, or behind the two
// counts and the pointer of std::make_shared. The word before it is the size of the block in the
// one case, which takes no more than its lower half, and the counts in the other, of which the
// upper one is never 0.
size_t bytes_of_object(char* begin) {
  uint64_t before = 0;
  std::memcpy(&before, begin - sizeof before, sizeof before);
  constexpr size_t kControlBlock = 16;
  if ((before >> 32) == 0) return malloc_usable_size(begin);
  return malloc_usable_size(begin - kControlBlock) - kControlBlock;
}

bool has_hooks(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta != nullptr &&
         (!meta->hooks_.empty() || meta->post_acc_grad_hooks_ != nullptr || meta->retains_grad_);
}

// They belong to the old tensor, which no gradient reaches any more, and cannot be copied.
void require_no_hooks(const std::vector<std::pair<std::string, torch::nn::Module*>>& modules,
                      c10::Device device) {
  for (const auto& [prefix, module] : modules) {
    for (const DictionaryMember dictionary : dictionaries()) {
      for (const auto& item : module->*dictionary) {
        const at::Tensor& tensor = item.value();
        if (!tensor.defined() || tensor.device() == device || !has_hooks(tensor)) continue;
        throw UsageError({.what = "'" + (prefix.empty() ? item.key() : prefix + "." + item.key()) +
                                  "' has hooks of its gradient, which cannot follow it to " +
                                  device.str(),
                          .where = "prepare",
                          .hint = "register them after prepare(), or make the module inside of "
                                  "init_on_device()"});
      }
    }
  }
}

at::Tensor on_device(const at::Tensor& tensor, c10::Device device) {
  at::Tensor other = tensor.detach().to(device);
  other.set_requires_grad(tensor.requires_grad());
  if (tensor.is_leaf() && tensor.grad().defined()) {
    other.mutable_grad() = tensor.grad().detach().to(device);
  }
  return other;
}

}  // namespace

void MovedHandles::move(torch::nn::Module& module, c10::Device device) {
  const at::NoGradGuard no_grad;
  const auto modules = modules_of(module);
  require_no_hooks(modules, device);
  bool has_moved = false;
  for (const auto& [prefix, each] : modules) {
    for (const DictionaryMember dictionary : dictionaries()) {
      for (auto& item : each->*dictionary) {
        const at::Tensor& tensor = item.value();
        if (!tensor.defined() || tensor.device() == device) continue;
        const auto* impl = tensor.unsafeGetTensorImpl();
        has_moved = true;
        if (moved_.contains(impl)) continue;  // shared with a module that moved before
        moved_.emplace(impl, Moved{.old = tensor,
                                   .now = on_device(tensor, device),
                                   .name = prefix.empty() ? item.key() : prefix + "." + item.key(),
                                   .number = moved_.size()});
      }
    }
  }
  if (!has_moved) return;
  for (const auto& [prefix, each] : modules) {
    for (const DictionaryMember dictionary : dictionaries()) {
      for (auto& item : each->*dictionary) replace(item.value());
    }
    replace_members(*each);
  }
}

void MovedHandles::follow(torch::optim::Optimizer& optimizer) {
  if (moved_.empty()) return;
  auto& states = optimizer.state();
  for (auto& group : optimizer.param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      void* const old = parameter.unsafeGetTensorImpl();
      replace(parameter);
      if (parameter.unsafeGetTensorImpl() == old) continue;
      const auto found = states.find(old);
      if (found == states.end()) continue;
      auto state = std::move(found->second);
      states.erase(found);
      states[parameter.unsafeGetTensorImpl()] = std::move(state);
    }
  }
}

void MovedHandles::require_all_followed() {
  const Moved* left = nullptr;  // the first of the module
  for (const auto& [impl, moved] : moved_) {
    if (moved.old.use_count() == 1) continue;
    if (left == nullptr || moved.number < left->number) left = &moved;
  }
  if (left != nullptr) {
    throw UsageError(
        {.what = "'" + left->name + "' moved to " + left->now.device().str() + ", and " +
                 std::to_string(left->old.use_count() - 1) +
                 " other handle(s) still hold the tensor that it was",
         .where = "prepare",
         .hint = "give its optimizer to prepare() with the model or after it, drop copies such "
                 "as a kept model->parameters(), or make the module inside of "
                 "init_on_device()"});
  }
  moved_.clear();
}

void MovedHandles::replace(at::Tensor& handle) const {
  // The bytes of what may be no handle at all, so nothing of them is followed.
  const c10::TensorImpl* impl = nullptr;
  constexpr size_t kBytes = sizeof(at::Tensor);
  static_assert(kBytes == sizeof(void*));
  std::memcpy(&impl, static_cast<const void*>(&handle), kBytes);
  const auto found = moved_.find(impl);
  if (found != moved_.end()) handle = found->second.now;
}

void MovedHandles::replace_members(torch::nn::Module& module) const {
  auto* begin = static_cast<char*>(dynamic_cast<void*>(&module));
  const size_t bytes = bytes_of_object(begin);
  for (size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    replace(*reinterpret_cast<at::Tensor*>(begin + at));
  }
}

}  // namespace accelerate::compat
