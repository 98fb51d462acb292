#include "accelerate/transformers/registry.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "transformers/models/all_models.h"

namespace accelerate::transformers {
namespace {

struct Registry {
  std::mutex mutex{};
  std::vector<Architecture> architectures{};
};

Registry& registry() {
  static Registry only;
  return only;
}

void add_own_models() {
  static std::once_flag once;
  static thread_local bool adding = false;
  if (adding) return;
  std::call_once(once, [] {
    adding = true;
    register_all_models();
    adding = false;
  });
}

}  // namespace

void register_architecture(Architecture architecture) {
  if (architecture.model_type.empty() || architecture.name.empty() || !architecture.make) {
    throw UsageError({.what =
                          "an architecture needs a model_type, a name and a function that makes "
                          "it",
                      .where = "register_architecture()"});
  }
  add_own_models();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const bool taken = std::ranges::any_of(all.architectures, [&](const Architecture& other) {
    return other.model_type == architecture.model_type && other.task == architecture.task;
  });
  if (taken) {
    throw UsageError({.what = "an architecture of the type '" + architecture.model_type +
                              "' is already registered for this task",
                      .where = architecture.name});
  }
  all.architectures.push_back(std::move(architecture));
}

std::vector<Architecture> registered_architectures() {
  add_own_models();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.architectures;
}

}  // namespace accelerate::transformers
