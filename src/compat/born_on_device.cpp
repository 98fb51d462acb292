#include "compat/born_on_device.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "accelerate/errors.h"

namespace accelerate::compat {
namespace {

constexpr c10::DispatchKey kBirthKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local std::optional<c10::Device> birth_device;

// One call of an operation inside of a scope.
class BirthCall {
 public:
  BirthCall(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op), stack_(stack), first_(stack.size() - op.schema().arguments().size()) {}

  void run() {
    // Threads of autograd take over the key of the thread that calls them, and not its device.
    if (!birth_device || birth_device->is_cpu()) return op_.callBoxed(stack_);
    if (is_factory()) {
      op_.callBoxed(stack_);
      if (stack_.back().isTensor()) stack_.back() = stack_.back().toTensor().to(*birth_device);
    } else if (draws_for_device()) {
      draw_on_cpu();
    } else {
      op_.callBoxed(stack_);
    }
  }

 private:
  c10::IValue& argument(size_t index) { return stack_[first_ + index]; }

  bool is_factory() {
    const auto& arguments = op_.schema().arguments();
    bool is_for_cpu = false;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (argument(i).isTensor() || argument(i).isTensorList()) return false;
      if (arguments[i].name() != "device") continue;
      const bool names_none = argument(i).isNone();
      if (!names_none && !argument(i).toDevice().is_cpu()) return false;
      // torch::tensor({...}) writes to such memory by pointers.
      is_for_cpu = names_none || op_.schema().name() != "aten::empty";
    }
    return is_for_cpu;
  }

  // normal_(), uniform_() and the like: fills, whatever the tensor held.
  bool draws_for_device() {
    static constexpr std::array<std::string_view, 8> kFills{
        "aten::normal_",    "aten::uniform_", "aten::random_",     "aten::bernoulli_",
        "aten::geometric_", "aten::cauchy_",  "aten::log_normal_", "aten::exponential_"};
    const auto& schema = op_.schema();
    if (std::find(kFills.begin(), kFills.end(), schema.name()) == kFills.end()) return false;
    if (argument(0).toTensor().device().type() != birth_device->type()) return false;
    for (size_t i = 1; i < schema.arguments().size(); ++i) {
      if (argument(i).isTensor()) return false;  // bernoulli_() with a tensor of probabilities
    }
    return true;
  }

  void draw_on_cpu() {
    const at::Tensor self = argument(0).toTensor();
    argument(0) = at::empty(self.sizes(), self.options().device(at::kCPU).requires_grad(false));
    op_.callBoxed(stack_);
    self.copy_(stack_.back().toTensor());
    stack_.back() = self;
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  size_t first_;
};

void redirect(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard past_the_scope(kBirthKey);
  BirthCall(op, *stack).run();
}

void register_birth_key() {
  // Never taken back: another thread may be in a scope.
  static torch::Library* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kBirthKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&redirect>());
    return made;
  }();
  static_cast<void>(library);
}

}  // namespace

BirthScope::BirthScope(c10::Device device) : redirects_((register_birth_key(), kBirthKey)) {
  if (birth_device) {
    throw UsageError({.what = "init_on_device() inside of another one of the same thread",
                      .where = "init_on_device",
                      .hint = "end the first one before"});
  }
  birth_device = device;
}

BirthScope::~BirthScope() { birth_device.reset(); }

}  // namespace accelerate::compat
