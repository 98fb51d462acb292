// The members of Accelerator that are about profiles.
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "accelerate/accelerator.h"
#include "accelerate/profiler.h"
#include "core/accelerator_impl.h"
#include "core/profile/profile_session.h"

namespace accelerate {
namespace {

// Memory that parameters of several modules lie in.
constexpr size_t kShared = SIZE_MAX;
// Which module the memory belongs to: views of a parameter are found by it.
using StorageOwners = std::map<const void*, size_t>;

// Adds the modules of a prepared model under `prefix`.
void add_module_names(const torch::nn::Module& model, const std::string& prefix, ModuleNames& names,
                      StorageOwners& storages) {
  for (const auto& item : model.named_modules(prefix)) {
    const size_t place = names.names.size();
    names.names.push_back(item.key());
    for (const at::Tensor& parameter : item.value()->parameters(/*recurse=*/false)) {
      names.owners.try_emplace(parameter.unsafeGetTensorImpl(), place);
      if (!parameter.has_storage() || parameter.storage().data() == nullptr) continue;
      const auto [owner, is_new] = storages.try_emplace(parameter.storage().data(), place);
      if (owner->second != place) owner->second = kShared;
    }
  }
}

}  // namespace

void refuse_shapes_of_shards(const char* where) {
  throw UsageError({.what = "shapes cannot be recorded of a model whose parameters are in shards",
                    .where = where,
                    .hint = "leave out record_shapes and with_modules of the profile, or profile "
                            "with a stage of sharding below 3"});
}

Profile Accelerator::profile() { return profile(impl_->options.profile); }

Profile Accelerator::profile(const ProfileOptions& options) {
  return impl_->stamped([&] {
    std::shared_ptr<const bool> shapes;
    if (options.record_shapes || options.with_modules) {
      for (const PreparedModule& model : impl_->models) {
        if (!model.strategy->layout().empty()) refuse_shapes_of_shards("profile");
      }
      shapes = std::make_shared<bool>(true);
    }
    const auto modules = [impl = impl_.get(), alive = std::weak_ptr(impl_->alive), shapes] {
      ModuleNames names;
      if (alive.expired()) return names;
      StorageOwners storages;
      size_t number = 0;
      for (const auto& entry : impl->models) {
        const bool is_alone = impl->models.size() == 1;
        const std::string prefix = is_alone ? "" : "model_" + std::to_string(number++);
        add_module_names(*entry.module, prefix, names, storages);
      }
      std::erase_if(storages, [](const auto& storage) { return storage.second == kShared; });
      names.owners.merge(storages);
      return names;
    };
    Profile profile(std::make_unique<detail::ProfileSession>(
        ProfileContext{.state = impl_->state, .ranks = impl_->communicator, .modules = modules},
        options));
    if (shapes) impl_->shapes_recorded = shapes;
    return profile;
  });
}

}  // namespace accelerate
