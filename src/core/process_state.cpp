#include "accelerate/process_state.h"

#include <exception>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "compat/cuda_plugin.h"

namespace accelerate {
namespace {

bool flag(const EnvironmentLookup& lookup, const char* name) {
  const auto text = lookup(name);
  return text && !text->empty() && parse_flag(name, *text);
}

std::optional<c10::Device> parsed_device(const std::string& name) {
  try {
    return c10::Device(name);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

c10::Device choose_device(const EnvironmentLookup& lookup, int gpu_count, int local_rank,
                          const ProcessStateOptions& options) {
  const bool cpu = options.cpu || flag(lookup, "ACCELERATE_USE_CPU");
  const auto named = lookup("ACCELERATE_TORCH_DEVICE");
  if (named && !named->empty()) {
    const auto device = parsed_device(*named);
    if (cpu && device && !device->is_cpu()) {
      throw ConfigError({.what = "ACCELERATE_TORCH_DEVICE=" + *named + " contradicts " +
                                 (options.cpu ? "the option cpu" : "ACCELERATE_USE_CPU"),
                         .where = "environment of the process",
                         .hint = "drop one of the two"});
    }
    const bool usable =
        device &&
        (device->is_cpu() || (device->is_cuda() && gpu_count > 0 && device->index() < gpu_count));
    if (!usable) {
      throw ConfigError({.what = "'" + *named + "' is not a device of this machine, which has " +
                                 std::to_string(gpu_count) + " GPU(s)",
                         .where = "environment variable ACCELERATE_TORCH_DEVICE",
                         .hint = "use cpu, cuda or cuda:N"});
    }
    if (device->is_cuda() && !device->has_index()) {
      return {c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % gpu_count)};
    }
    return *device;
  }
  if (cpu || gpu_count == 0) return c10::kCPU;
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % gpu_count)};
}

}  // namespace

std::string_view to_string(DistributedType type) {
  switch (type) {
    case DistributedType::kNo:
      return "NO";
    case DistributedType::kMultiCpu:
      return "MULTI_CPU";
    case DistributedType::kMultiGpu:
      return "MULTI_GPU";
  }
  return "unknown";
}

ProcessState ProcessState::read(const EnvironmentLookup& lookup, int gpu_count,
                                const ProcessStateOptions& options) {
  ProcessState state;
  state.ranks_ = RankEnvironment::read(lookup);
  state.gpu_count_ = gpu_count;
  state.device_ = choose_device(lookup, gpu_count, state.ranks_.local_rank, options);
  return state;
}

ProcessState ProcessState::from_environment(const ProcessStateOptions& options) {
  const bool cpu = options.cpu || environment_flag("ACCELERATE_USE_CPU");
  return read(environment_variable, cpu ? 0 : compat::gpu_count(), options);
}

DistributedType ProcessState::distributed_type() const {
  if (world_size() == 1) return DistributedType::kNo;
  return device_.is_cuda() ? DistributedType::kMultiGpu : DistributedType::kMultiCpu;
}

}  // namespace accelerate
