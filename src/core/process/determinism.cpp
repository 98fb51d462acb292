#include "core/process/determinism.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/detail/nondeterminism.h"
#include "accelerate/errors.h"
#include "comm/groups/communicator_impl.h"
#include "device/deterministic_libraries.h"

namespace accelerate {
namespace {

struct DeterministicSettings {
  bool algorithms = true;
  bool warns_only = false;
  bool fills_memory = true;  // what is read before it was written is the same in every run, too
  bool cudnn = true;
  bool cudnn_benchmark = false;
  bool mkldnn = true;

  static DeterministicSettings current() {
    const auto& context = at::globalContext();
    return {.algorithms = context.deterministicAlgorithms(),
            .warns_only = context.deterministicAlgorithmsWarnOnly(),
            .fills_memory = context.deterministicFillUninitializedMemory(),
            .cudnn = context.deterministicCuDNN(),
            .cudnn_benchmark = context.benchmarkCuDNN(),
            .mkldnn = context.deterministicMkldnn()};
  }

  void apply() const {
    auto& context = at::globalContext();
    context.setDeterministicAlgorithms(algorithms, warns_only);
    context.setDeterministicFillUninitializedMemory(fills_memory);
    context.setDeterministicCuDNN(cudnn);
    context.setBenchmarkCuDNN(cudnn_benchmark);
    context.setDeterministicMkldnn(mkldnn);
  }
};

struct LivingRequests {
  std::mutex mutex;
  int with = 0;
  int without = 0;
  DeterministicSettings before{};
  std::vector<std::weak_ptr<Communicator>> ranks{};  // the newest last
};

LivingRequests& living_requests() {
  static auto& requests = *new LivingRequests();  // accelerators may end after static objects
  return requests;
}

// "put_", of libtorch's sentence about it; empty if that is about something else.
std::string refused_operation(std::string_view message) {
  constexpr std::string_view kPlain = " does not have a deterministic implementation";
  const size_t end = message.find(kPlain);
  if (end == std::string_view::npos) return {};
  const size_t begin = message.find_last_of(" \n", end == 0 ? 0 : end - 1);
  return std::string(message.substr(begin == std::string_view::npos ? 0 : begin + 1,
                                    end - (begin == std::string_view::npos ? 0 : begin + 1)));
}

}  // namespace

Determinism::Determinism(bool wanted, c10::Device device) : wanted_(wanted) {
  LivingRequests& requests = living_requests();
  const std::lock_guard lock(requests.mutex);
  if ((wanted ? requests.without : requests.with) > 0) {
    throw UsageError({.what = "one accelerator of this process is deterministic and another is "
                              "not, but libtorch has one setting for both",
                      .where = "AcceleratorOptions::deterministic",
                      .hint = "give them the same setting, or let the first one end before the "
                              "second begins"});
  }
  if (!wanted) {
    ++requests.without;
    return;
  }
  if (requests.with == 0) {
    device::use_deterministic_libraries(device);
    requests.before = DeterministicSettings::current();
    DeterministicSettings{}.apply();
    // From here on MKL uses this number of threads for every size, not up to this number.
    at::set_num_threads(at::get_num_threads());
  }
  ++requests.with;
}

Determinism::~Determinism() {
  LivingRequests& requests = living_requests();
  const std::lock_guard lock(requests.mutex);
  if (!wanted_) {
    --requests.without;
  } else if (--requests.with == 0) {
    requests.before.apply();
    requests.ranks.clear();
  }
}

void Determinism::set_ranks(const std::shared_ptr<Communicator>& ranks) const {
  if (!wanted_) return;
  LivingRequests& requests = living_requests();
  const std::lock_guard lock(requests.mutex);
  std::erase_if(requests.ranks, [](const auto& group) { return group.expired(); });
  requests.ranks.emplace_back(ranks);
}

bool Determinism::is_on() {
  LivingRequests& requests = living_requests();
  const std::lock_guard lock(requests.mutex);
  return requests.with > 0;
}

void detail::refuse_nondeterminism(const c10::Error& error, const char* where) {
  if (!Determinism::is_on()) return;
  const std::string operation = refused_operation(error.what_without_backtrace());
  if (operation.empty()) return;
  ErrorInfo info{.what = "'" + operation +
                         "' has no deterministic implementation for these "
                         "arguments in libtorch, and AcceleratorOptions::deterministic is set",
                 .where = where,
                 .hint =
                     "use another operation, or leave `deterministic` out: two runs may then "
                     "differ in the last bits"};
  std::shared_ptr<Communicator> ranks;
  {
    LivingRequests& requests = living_requests();
    const std::lock_guard lock(requests.mutex);
    // Any group of the job reaches all its ranks.
    for (auto group = requests.ranks.rbegin(); group != requests.ranks.rend() && !ranks; ++group) {
      ranks = group->lock();
    }
  }
  if (ranks == nullptr || ranks->world_size() == 1) throw UsageError(std::move(info));
  // Others may be in an exchange that this rank does not come to any more.
  comm::impl_of(*ranks).refuse_on_all(std::move(info));
}

}  // namespace accelerate
