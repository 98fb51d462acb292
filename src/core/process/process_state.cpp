#include "accelerate/process_state.h"

#include <algorithm>
#include <exception>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "device/device_backend.h"

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

int count_of(const std::vector<VisibleDevices>& devices, c10::DeviceType type) {
  const auto found = std::ranges::find(devices, type, &VisibleDevices::type);
  return found == devices.end() ? 0 : found->count;
}

// The device of a kind that belongs to a rank, which shares those of its machine with others.
c10::Device share_of(int local_rank, const VisibleDevices& kind) {
  return {kind.type, static_cast<c10::DeviceIndex>(local_rank % kind.count)};
}

// "2 GPU(s)", "2 GPU(s) and 1 toy device(s)".
std::string counted_devices(const std::vector<VisibleDevices>& devices) {
  std::string text;
  for (const VisibleDevices& kind : devices) {
    text += (text.empty() ? "" : " and ") + std::to_string(kind.count) + " " +
            device::device_backend(kind.type).noun() + "(s)";
  }
  return text.empty() ? "none beside the CPU" : text;
}

// "use cpu, cuda or cuda:N".
std::string usable_names(const std::vector<VisibleDevices>& devices) {
  std::string text = "use cpu";
  for (const VisibleDevices& kind : devices) {
    const std::string name = c10::DeviceTypeName(kind.type, /*lower_case=*/true);
    text += ", " + name + " or " + name + ":N";
  }
  return text;
}

const VisibleDevices* preferred_kind(const std::vector<VisibleDevices>& devices) {
  const auto found =
      std::ranges::find_if(devices, [](const VisibleDevices& kind) { return kind.count > 0; });
  return found == devices.end() ? nullptr : &*found;
}

c10::Device choose_device(const EnvironmentLookup& lookup,
                          const std::vector<VisibleDevices>& devices, int local_rank,
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
    const int count = device ? count_of(devices, device->type()) : 0;
    const bool usable = device && (device->is_cpu() || (count > 0 && device->index() < count));
    if (!usable) {
      throw ConfigError({.what = "'" + *named + "' is not a device of this machine, which has " +
                                 counted_devices(devices),
                         .where = "environment variable ACCELERATE_TORCH_DEVICE",
                         .hint = usable_names(devices)});
    }
    if (device->is_cpu() || device->has_index()) return *device;
    return share_of(local_rank, {.type = device->type(), .count = count});
  }
  const VisibleDevices* preferred = preferred_kind(devices);
  return cpu || preferred == nullptr ? c10::Device(c10::kCPU) : share_of(local_rank, *preferred);
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

ProcessState ProcessState::read(const EnvironmentLookup& lookup,
                                const std::vector<VisibleDevices>& devices,
                                const ProcessStateOptions& options) {
  ProcessState state;
  state.ranks_ = RankEnvironment::read(lookup);
  state.device_ = choose_device(lookup, devices, state.ranks_.local_rank, options);
  const VisibleDevices* preferred = preferred_kind(devices);
  if (!state.device_.is_cpu()) {
    state.gpu_count_ = count_of(devices, state.device_.type());
  } else if (preferred != nullptr) {
    state.gpu_count_ = preferred->count;
  }
  return state;
}

ProcessState ProcessState::read(const EnvironmentLookup& lookup, int gpu_count,
                                const ProcessStateOptions& options) {
  return read(lookup, {{.type = c10::kCUDA, .count = gpu_count}}, options);
}

ProcessState ProcessState::from_environment(const ProcessStateOptions& options) {
  const bool cpu = options.cpu || environment_flag("ACCELERATE_USE_CPU");
  return read(environment_variable, cpu ? std::vector<VisibleDevices>() : device::visible_devices(),
              options);
}

DistributedType ProcessState::distributed_type() const {
  if (world_size() == 1) return DistributedType::kNo;
  return device_.is_cpu() ? DistributedType::kMultiCpu : DistributedType::kMultiGpu;
}

}  // namespace accelerate
