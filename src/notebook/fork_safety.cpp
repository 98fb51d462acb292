#include "notebook/fork_safety.h"

#include <dlfcn.h>

#include <atomic>

#include "accelerate/errors.h"
#include "accelerate/process_state.h"
#include "base/environment.h"

namespace accelerate::notebook {
namespace {

// About the process as a whole, as fork() is.
std::atomic<bool> launch_under_way{false};

}  // namespace

bool cuda_is_initialised() {
  // libtorch's own flag knows only of libtorch's use; the driver knows of all.
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  // Answers CUDA_ERROR_NOT_INITIALIZED, and does nothing else, before cuInit().
  using CountDevices = int (*)(int*);
  const auto count = reinterpret_cast<CountDevices>(dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  const bool initialised = count != nullptr && count(&devices) == 0;
  dlclose(driver);
  return initialised;
}

void require_no_ranks(std::string_view caller) {
  const RankEnvironment ranks = RankEnvironment::read(environment_variable);
  if (ranks.world_size == 1) return;
  throw UsageError({.what = std::string(caller) + " cannot start workers: this process is rank " +
                            std::to_string(ranks.rank) + " of " + std::to_string(ranks.world_size) +
                            " already",
                    .where = "environment of the process, read as that of " + ranks.source,
                    .hint = "call the function itself, or start this program without a launcher"});
}

void require_no_cuda(std::string_view caller) {
  if (!cuda_is_initialised()) return;
  throw UsageError(
      {.what = std::string(caller) +
               " cannot start workers: CUDA was initialised in this process, and a forked process "
               "cannot use it",
       .hint = "restart the program or the notebook, and create the Accelerator, and everything "
               "on a GPU, inside the launched function"});
}

OneLaunch::OneLaunch(std::string_view caller) {
  if (!launch_under_way.exchange(true)) return;
  throw UsageError(
      {.what = std::string(caller) + " was called while a launch is under way in this process",
       .hint = "start all workers by one call, outside of the function that they run"});
}

OneLaunch::~OneLaunch() { launch_under_way = false; }

}  // namespace accelerate::notebook
