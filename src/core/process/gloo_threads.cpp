#include "core/process/gloo_threads.h"

#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "accelerate/run.h"
#include "comm/groups/communicator_impl.h"

namespace accelerate {
namespace {

std::mutex ranks_mutex;
// The latest last. Never destroyed: such a thread may fail while the process ends.
std::vector<std::weak_ptr<Communicator>>& known_ranks() {
  static auto& ranks = *new std::vector<std::weak_ptr<Communicator>>;
  return ranks;
}

std::shared_ptr<Communicator> latest_ranks() {
  const std::lock_guard lock(ranks_mutex);
  for (auto known = known_ranks().rbegin(); known != known_ranks().rend(); ++known) {
    if (auto ranks = known->lock()) return ranks;
  }
  return nullptr;
}

std::terminate_handler handler_before = nullptr;

bool is_of_gloo() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  return type != nullptr && std::string_view(type->name()).starts_with("N4gloo");
}

std::string text_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "";
  }
}

[[noreturn]] void on_terminate() {
  static std::atomic_flag is_reported;
  const bool is_main_thread = gettid() == getpid();
  if (is_of_gloo() && !is_main_thread) {
    // Another thread of Gloo, while the first one reports.
    while (is_reported.test_and_set()) pause();
    if (const auto ranks = latest_ranks()) {
      const std::string cause = text_of_current_exception();
      // The stack of this thread holds locks of Gloo: nothing that waits for it can be undone.
      _exit(detail::report_uncaught(comm::impl_of(*ranks).failure_on_other_thread(cause)));
    }
  }
  if (handler_before != nullptr) handler_before();
  std::abort();
}

}  // namespace

void report_failures_of_gloo(const std::shared_ptr<Communicator>& ranks) {
  if (ranks->world_size() == 1) return;
  const std::lock_guard lock(ranks_mutex);
  std::erase_if(known_ranks(), [](const auto& known) { return known.expired(); });
  known_ranks().push_back(ranks);
  static const bool is_set = [] {
    handler_before = std::set_terminate(on_terminate);
    return true;
  }();
  (void)is_set;
}

}  // namespace accelerate
