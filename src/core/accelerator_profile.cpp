// The members of Accelerator that are about profiles.
#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "accelerate/accelerator.h"
#include "accelerate/profiler.h"
#include "core/accelerator_impl.h"
#include "core/profile/profile_session.h"

namespace accelerate {
namespace {

// Adds the modules of a prepared model under `prefix`.
void add_module_names(const torch::nn::Module& model, const std::string& prefix,
                      ModuleNames& names) {
  for (const auto& item : model.named_modules(prefix)) {
    const size_t place = names.names.size();
    names.names.push_back(item.key());
    for (const at::Tensor& parameter : item.value()->parameters(/*recurse=*/false)) {
      names.owners.try_emplace(parameter.unsafeGetTensorImpl(), place);
    }
  }
}

}  // namespace

Profile Accelerator::profile() { return profile(impl_->options.profile); }

Profile Accelerator::profile(const ProfileOptions& options) {
  return impl_->stamped([&] {
    const auto modules = [impl = impl_.get()] {
      ModuleNames names;
      size_t number = 0;
      for (const auto& entry : impl->models) {
        const bool is_alone = impl->models.size() == 1;
        const std::string prefix = is_alone ? "" : "model_" + std::to_string(number++);
        add_module_names(*entry.module, prefix, names);
      }
      return names;
    };
    return Profile(std::make_unique<detail::ProfileSession>(
        ProfileContext{.state = impl_->state, .ranks = impl_->communicator, .modules = modules},
        options));
  });
}

}  // namespace accelerate
