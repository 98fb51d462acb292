#include "accelerate/process_state.h"

#include <algorithm>
#include <exception>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "config/capability_variables.h"
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

constexpr const char* kDeviceVariable = "ACCELERATE_TORCH_DEVICE";

// Whether a variable of the process asks for a TPU, or for another XLA device.
bool variables_ask_for_xla(const EnvironmentLookup& lookup) {
  return std::ranges::any_of(config::kCapabilities, [&](const config::CapabilityRow& row) {
    return row.capability == config::Capability::kTpu && !row.variable.empty() &&
           config::is_asked_by_variable(row,
                                        lookup(std::string(row.variable).c_str()).value_or(""));
  });
}

// A device by its name, and who says it. Nothing where nobody does.
struct NamedDevice {
  std::string name{};
  std::string where{};   // "environment variable ACCELERATE_TORCH_DEVICE"
  std::string source{};  // "ACCELERATE_TORCH_DEVICE=cuda"
};

NamedDevice named_device(const EnvironmentLookup& lookup, const ProcessStateOptions& options) {
  if (!options.device.empty()) {
    return {.name = options.device,
            .where = "AcceleratorOptions::device",
            .source = "the option device = \"" + options.device + "\""};
  }
  const std::string of_variable = lookup(kDeviceVariable).value_or("");
  if (!of_variable.empty()) {
    return {.name = of_variable,
            .where = std::string("environment variable ") + kDeviceVariable,
            .source = std::string(kDeviceVariable) + "=" + of_variable};
  }
  return {};
}

bool stays_on_cpu(const EnvironmentLookup& lookup, const ProcessStateOptions& options) {
  return options.cpu || flag(lookup, "ACCELERATE_USE_CPU");
}

// Whether this process is to train on an XLA device, which nothing but its name chooses.
bool asks_for_xla(const EnvironmentLookup& lookup, const ProcessStateOptions& options) {
  if (stays_on_cpu(lookup, options)) return false;
  const std::string name = named_device(lookup, options).name;
  if (!name.empty()) {
    const auto device = parsed_device(name);
    return device && device->type() == c10::kXLA;
  }
  // Elsewhere the variable is refused by its name: see requested_capabilities.h.
  return config::kHasXla && variables_ask_for_xla(lookup);
}

c10::Device choose_device(const EnvironmentLookup& lookup,
                          const std::vector<VisibleDevices>& devices, int local_rank,
                          const ProcessStateOptions& options) {
  const bool cpu = options.cpu || flag(lookup, "ACCELERATE_USE_CPU");
  NamedDevice named = named_device(lookup, options);
  if (named.name.empty() && asks_for_xla(lookup, options)) {
    named = {.name = "xla", .where = "environment of the process", .source = "its variables"};
  }
  if (!named.name.empty()) {
    const auto device = parsed_device(named.name);
    if (cpu && device && !device->is_cpu()) {
      throw ConfigError({.what = named.source + " contradicts " +
                                 (options.cpu ? "the option cpu" : "ACCELERATE_USE_CPU"),
                         .where = "environment of the process",
                         .hint = "drop one of the two"});
    }
    const int count = device ? count_of(devices, device->type()) : 0;
    const bool usable = device && (device->is_cpu() || (count > 0 && device->index() < count));
    if (!usable) {
      throw ConfigError({.what = "'" + named.name +
                                 "' is not a device of this machine, which has " +
                                 counted_devices(devices),
                         .where = named.where,
                         .hint = usable_names(devices)});
    }
    if (device->is_cpu() || device->has_index()) return *device;
    return share_of(local_rank, {.type = device->type(), .count = count});
  }
  const VisibleDevices* preferred = preferred_kind(devices);
  return cpu || preferred == nullptr ? c10::Device(c10::kCPU) : share_of(local_rank, *preferred);
}

// Processes of XLA's CPU client would each get their own values back from an exchange.
void require_one_process(c10::Device device, int world_size) {
  if (device.type() != c10::kXLA || world_size == 1) return;
  throw ConfigError({.what = std::to_string(world_size) +
                             " processes cannot train together on XLA devices: one process "
                             "drives all devices of its machine",
                     .where = "environment of the process",
                     .hint = "start one process (--num_processes 1), which cuts each batch over "
                             "the devices"});
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
    case DistributedType::kXla:
      return "XLA";
  }
  return "unknown";
}

ProcessState ProcessState::read(const EnvironmentLookup& lookup,
                                const std::vector<VisibleDevices>& devices,
                                const ProcessStateOptions& options) {
  ProcessState state;
  state.ranks_ = RankEnvironment::read(lookup);
  state.device_ = choose_device(lookup, devices, state.ranks_.local_rank, options);
  require_one_process(state.device_, state.ranks_.world_size);
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
  // A name that libtorch does not know until torch_tpu is loaded.
  if (!cpu && named_device(environment_variable, options).name.substr(0, 3) == "tpu") {
    device::refuse_tpu_devices();
  }
  const bool takes_xla = asks_for_xla(environment_variable, options);
  if (takes_xla) device::open_xla_devices();
  auto devices = cpu ? std::vector<VisibleDevices>() : device::visible_devices();
  // Of another accelerator of this process.
  if (!takes_xla) std::erase_if(devices, [](const auto& kind) { return kind.type == c10::kXLA; });
  return read(environment_variable, devices, options);
}

DistributedType ProcessState::distributed_type() const {
  if (device_.type() == c10::kXLA) return DistributedType::kXla;
  if (world_size() == 1) return DistributedType::kNo;
  return device_.is_cpu() ? DistributedType::kMultiCpu : DistributedType::kMultiGpu;
}

}  // namespace accelerate
