#include "compat/xla/client.h"

#include <c10/util/env.h>
#include <dlfcn.h>
#include <torch/csrc/lazy/backend/backend_device.h>
#include <torch/csrc/lazy/backend/backend_interface.h>
#include <torch/csrc/lazy/core/ir.h>
#include <torch/csrc/lazy/core/metrics.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "base/environment.h"
#include "compat/xla/engine_threads.h"
#include "compat/xla/file_symbols.h"
#include "compat/xla/installation.h"
#include "compat/xla/tpu_hardware.h"

namespace accelerate::compat {
namespace {

using torch::lazy::BackendDevice;

// xla::OpSharding, a message of protobuf: room for the largest that a release may make of it.
struct alignas(16) ShardingMessage {
  char bytes[1024]{};
};

// Functions of torch_xla, by the names that a compiler gives them.
struct XlaFunctions {
  bool (*init_backend)() = nullptr;
  void (*step_marker)(const std::string& device, const std::vector<std::string>& devices, bool wait,
                      bool reset_scope) = nullptr;
  void (*prepare_to_exit)() = nullptr;
  void (*set_all_reduce_token)(const BackendDevice&,
                               const std::shared_ptr<torch::lazy::Value>&) = nullptr;
  void (*set_seed)(uint64_t seed, const std::string& device) = nullptr;
  uint64_t (*seed)(const std::string& device) = nullptr;
  const void* (*make_client)() = nullptr;  // returns what client() looks into
  void* (*client)() = nullptr;             // null before make_client()
  size_t (*local_devices)(const void* client) = nullptr;
  void (*construct_sharding)(ShardingMessage*, void* arena) = nullptr;
  void (*destroy_sharding)(ShardingMessage*) = nullptr;
  bool (*parse_message)(ShardingMessage*, std::string_view) = nullptr;
  void (*mark_sharding)(const at::Tensor&, ShardingMessage*) = nullptr;
};

XlaFunctions functions;
std::atomic<bool> is_open = false;
pid_t process_of_client = 0;

void* opened_library(const std::filesystem::path& file, int flags) {
  void* library = dlopen(file.c_str(), flags);
  if (library != nullptr) return library;
  const char* why = dlerror();
  throw ConfigError({.what = why == nullptr ? "torch_xla cannot be opened" : why,
                     .where = file.string(),
                     .hint = "make deps-xla installs it anew"});
}

XlaFunctions functions_of(const std::filesystem::path& file, void* library) {
  const std::vector<std::string_view> names{
      "_ZN9torch_xla14InitXlaBackendEv",
      "_ZN9torch_xla12_GLOBAL__N_110StepMarkerERKNSt7__cxx1112basic_stringIcSt11char_"
      "traitsIcESaIcEEE"
      "RKSt6vectorIS6_SaIS6_EEbb",
      "_ZN9torch_xla12_GLOBAL__N_113PrepareToExitEv",
      "_ZN9torch_xla17SetAllReduceTokenERKN5torch4lazy13BackendDeviceERKSt10shared_ptrINS1_"
      "5ValueEE",
      "_ZN9torch_xla12_GLOBAL__N_110SetRngSeedEmRKNSt7__cxx1112basic_stringIcSt11char_"
      "traitsIcESaIcEEE",
      "_ZN9torch_xla12_GLOBAL__N_110GetRngSeedERKNSt7__cxx1112basic_stringIcSt11char_"
      "traitsIcESaIcEEE",
      "_ZN9torch_xla7runtime20GetComputationClientEv",
      "_ZN9torch_xla7runtime33GetComputationClientIfInitializedEv",
      "_ZNK9torch_xla7runtime21PjRtComputationClient18GetNumLocalDevicesEv",
      "_ZN3xla10OpShardingC1EPN6google8protobuf5ArenaE",
      "_ZN3xla10OpShardingD1Ev",
      "_ZN6google8protobuf11MessageLite15ParseFromStringESt17basic_string_viewIcSt11char_"
      "traitsIcEE",
      "_ZN9torch_xla12ShardingUtil15XlaMarkShardingERKN2at6TensorEN3xla10OpShardingE"};
  const std::vector<void*> found = functions_in_symtab(file, library, names);
  for (size_t i = 0; i < names.size(); ++i) {
    if (found[i] != nullptr) continue;
    throw ConfigError({.what = "torch_xla has no function " + std::string(names[i]),
                       .where = file.string(),
                       .hint = "make deps-xla installs the release that is supported"});
  }
  XlaFunctions table;
  auto take = [&, next = size_t{0}](auto& function) mutable {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found[next++]);
  };
  take(table.init_backend);
  take(table.step_marker);
  take(table.prepare_to_exit);
  take(table.set_all_reduce_token);
  take(table.set_seed);
  take(table.seed);
  take(table.make_client);
  take(table.client);
  take(table.local_devices);
  take(table.construct_sharding);
  take(table.destroy_sharding);
  take(table.parse_message);
  take(table.mark_sharding);
  return table;
}

void set_unless_set(const char* name, const std::string& value) {
  c10::utils::set_env(name, value.c_str(), /*overwrite=*/false);
}

// "CPU" or "TPU". Whoever names a TPU where there is none would wait for minutes.
std::string chosen_client() {
  constexpr const char* kVariable = "PJRT_DEVICE";
  const std::string named = environment_variable(kVariable).value_or("");
  if (named.empty()) return has_tpu() ? "TPU" : "CPU";
  if (named == "CPU") return named;
  if (named != "TPU") {
    throw ConfigError({.what = "PJRT_DEVICE=" + named + " is not a client that this library knows",
                       .where = std::string("environment variable ") + kVariable,
                       .hint = "TPU, or CPU for XLA's own CPU device"});
  }
  if (has_tpu()) return named;
  throw ConfigError({.what = "this machine has no TPU (no /dev/accel0, none on its PCI bus)",
                     .where = std::string("environment variable ") + kVariable,
                     .hint = "PJRT_DEVICE=CPU trains on XLA's own CPU device"});
}

// What torch_xla's Python package does before it loads the same library.
void set_variables_of_client(const std::string& client, const std::filesystem::path& packages) {
  set_unless_set("PJRT_DEVICE", client);
  set_unless_set("XLA_FLAGS", "--xla_cpu_enable_fast_math=false");
  // Errors alone: it warns of a partitioner that users do not choose.
  set_unless_set("TF_CPP_MIN_LOG_LEVEL", "2");
  if (client != "TPU") {
    const std::string devices = environment_variable("CPU_NUM_DEVICES").value_or("1");
    if (devices != "1" && !devices.empty()) set_unless_set("XLA_USE_SPMD", "1");
    return;
  }
  set_unless_set("XLA_USE_SPMD", "1");  // one process drives all chips of its machine
  const std::filesystem::path libtpu = packages / "libtpu" / "libtpu.so";
  if (!environment_variable("TPU_LIBRARY_PATH") && !std::filesystem::exists(libtpu)) {
    throw ConfigError({.what = "libtpu is not installed beside torch_xla",
                       .where = packages.string(),
                       .hint = "pip install 'torch_xla[tpu]==2.9.0' there, or set "
                               "TPU_LIBRARY_PATH"});
  }
  set_unless_set("TPU_LIBRARY_PATH", libtpu.string());
}

bool drives_all_devices() {
  const auto spmd = environment_variable("XLA_USE_SPMD");
  return spmd && *spmd != "0" && !spmd->empty();
}

// Throws ConfigError where the client cannot be made: its devices are in use, say.
void make_client() {
  try {
    process_of_client = getpid();
    functions.make_client();
    if (functions.client() != nullptr) return;
  } catch (const std::exception& error) {
    throw ConfigError({.what = std::string("XLA has no devices: ") + error.what(),
                       .where = "PJRT_DEVICE=" + environment_variable("PJRT_DEVICE").value_or(""),
                       .hint = "another process may hold them"});
  }
  throw ConfigError({.what = "XLA has no client",
                     .where = "PJRT_DEVICE=" + environment_variable("PJRT_DEVICE").value_or("")});
}

int local_devices() { return static_cast<int>(functions.local_devices(functions.client())); }

// Nothing may leave a handler of the end: the process would abort in place of its own exit code.
void end_what_is_queued() noexcept {
  if (getpid() != process_of_client) return;  // a forked child has none of the client's threads
  try {
    functions.prepare_to_exit();
  } catch (const std::exception& error) {
    log(LogLevel::kWarning,
        std::string("what was queued on XLA devices failed at the end: ") + error.what());
  } catch (...) {
    log(LogLevel::kWarning, "what was queued on XLA devices failed at the end");
  }
}

void open_once() {
  const XlaSearch search = own_xla_search();
  const XlaInstallation installation = find_xla(search);
  set_variables_of_client(chosen_client(), search.packages);
  // Their names satisfy what _XLAC names; the real ones would pull in all of CUDA and a Python.
  for (const char* stand_in : {"libtorch.so", "libtorch_python.so", "libpython3.11.so.1.0"}) {
    opened_library(installation.stand_ins / stand_in, RTLD_NOW | RTLD_LOCAL);
  }
  void* library = opened_library(installation.library, RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
  functions = functions_of(installation.library, library);
  AutogradThreads::begin();
  functions.init_backend();
  make_client();
  // Before the destructors of torch_xla, of its client and of libtorch: what was queued ends first.
  std::atexit([] { end_what_is_queued(); });
  AutogradThreads::add_missing(local_devices());
  is_open = true;
}

BackendDevice backend_device(c10::Device device) {
  return torch::lazy::getBackend()->GetBackendDevice(device);
}

// A varint of protobuf.
void append_number(std::string& wire, uint64_t number) {
  for (; number >= 0x80; number >>= 7) wire += static_cast<char>((number & 0x7F) | 0x80);
  wire += static_cast<char>(number);
}

// xla.OpSharding of protobuf: type OTHER, tile_assignment_dimensions, tile_assignment_devices.
std::string rows_cut_over(int devices, int64_t dimensions) {
  std::string shape;
  append_number(shape, static_cast<uint64_t>(devices));
  shape.append(static_cast<size_t>(dimensions - 1), '\x01');
  std::string tiles;
  for (int device = 0; device < devices; ++device) {
    append_number(tiles, static_cast<uint64_t>(device));
  }
  std::string wire = "\x08\x03\x1a";
  append_number(wire, shape.size());
  wire += shape + "\x22";
  append_number(wire, tiles.size());
  return wire + tiles;
}

}  // namespace

void open_xla() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!is_open) open_once();
}

bool xla_is_open() { return is_open; }

int xla_devices_in_program() {
  if (!drives_all_devices()) return 1;
  static const int count = local_devices();
  return count;
}

int xla_device_count() {
  if (drives_all_devices()) return 1;
  static const int count = local_devices();
  return count;
}

void cut_xla_graph(c10::Device device, bool wait) {
  functions.step_marker(device.str(), {}, wait, /*reset_scope=*/true);
  // The token that orders collectives belongs to one graph: left alone it would drag the graph of
  // this step into the next one.
  functions.set_all_reduce_token(backend_device(device), nullptr);
}

void set_xla_seed(c10::Device device, uint64_t seed) { functions.set_seed(seed, device.str()); }

uint64_t xla_seed(c10::Device device) { return functions.seed(device.str()); }

void cut_rows_over_xla_devices(const at::Tensor& tensor) {
  const int devices = xla_devices_in_program();
  if (devices == 1 || tensor.dim() == 0 || tensor.numel() == 0) return;
  if (tensor.size(0) % devices != 0) return;
  ShardingMessage sharding;
  functions.construct_sharding(&sharding, nullptr);
  const bool is_parsed = functions.parse_message(&sharding, rows_cut_over(devices, tensor.dim()));
  if (is_parsed) functions.mark_sharding(tensor, &sharding);
  functions.destroy_sharding(&sharding);
  TORCH_INTERNAL_ASSERT(is_parsed, "these bytes are a message of xla.OpSharding");
}

XlaCounts xla_counts() {
  XlaCounts counts{.compilations = xla_compilations()};
  constexpr std::string_view kFallback = "aten::";
  for (const std::string& name : torch::lazy::GetCounterNames()) {
    if (!name.starts_with(kFallback)) continue;
    counts.on_the_host[name] = torch::lazy::GetCounter(name)->Value();
  }
  return counts;
}

int64_t xla_compilations() {
  auto* counter = torch::lazy::GetCounter("UncachedCompile");
  return counter == nullptr ? 0 : counter->Value();
}

}  // namespace accelerate::compat
