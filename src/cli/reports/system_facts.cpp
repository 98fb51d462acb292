#include "cli/reports/system_facts.h"

#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <tuple>

#include "base/environment.h"
#include "cli/reports/captured_command.h"
#include "config/value.h"
#include "launch/plan/command_line.h"
#include "launch/plan/folder_entries.h"
#include "launch/plan/machine.h"
#include "launch/plan/worker_environment.h"

namespace accelerate::cli {
namespace {

namespace fs = std::filesystem;

// Long enough for a busy machine or a cold network disk; a healthy Python answers in 50 ms.
constexpr std::chrono::milliseconds kPythonDeadline{10000};
constexpr std::chrono::milliseconds kNvidiaSmiDeadline{5000};

// Prints the version of Python, and that of torch as its version.py says: importing torch itself
// takes seconds.
constexpr const char* kPythonQuestion = R"py(
import importlib.util, platform, re
text = platform.python_version()
spec = importlib.util.find_spec('torch')
if spec and spec.submodule_search_locations:
    with open(spec.submodule_search_locations[0] + '/version.py') as file:
        found = re.search(r"__version__ = ['\"]([^'\"]+)", file.read())
    text += '\n' + (found.group(1) if found else 'of unknown version')
print(text)
)py";

constexpr std::array<std::string_view, 15> kRelevantNames = {
    "RANK",         "LOCAL_RANK",   "WORLD_SIZE",           "LOCAL_WORLD_SIZE", "NODE_RANK",
    "GROUP_RANK",   "PYTHON",       "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",  "SLURM_JOB_ID",
    "SLURM_PROCID", "SLURM_NTASKS", "LD_LIBRARY_PATH",      "LD_PRELOAD",       "CPU_NUM_DEVICES",
};
constexpr std::array<std::string_view, 10> kRelevantPrefixes = {
    "ACCELERATE_",   "MASTER_",          "NCCL_", "GLOO_", "TORCH_", "PJRT_",
    "TORCHELASTIC_", "OMPI_COMM_WORLD_", "TPU_",  "XLA_"};

// The text after `key` and a colon in the first line of `file` that begins with `key`.
std::string field_of(const fs::path& file, std::string_view key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin == std::string::npos) continue;
    return line.substr(begin, line.find_last_not_of(" \t") - begin + 1);
  }
  return "";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// For machines whose /proc does not show the driver, as in some containers. `ids`: of which GPUs;
// "": of all.
std::vector<std::string> ask_nvidia_smi(const std::string& fields, const std::string& ids = "") {
  const std::string program = launch::find_in_path("nvidia-smi");
  if (program.empty() || launch::visible_gpus() == 0) return {};
  std::vector<std::string> command = {program, "--query-gpu=" + fields, "--format=csv,noheader"};
  if (!ids.empty()) command.push_back("--id=" + ids);
  const auto answer = captured_command(command, kNvidiaSmiDeadline);
  return answer ? lines_of(*answer) : std::vector<std::string>{};
}

}  // namespace

PlatformFacts platform_facts() {
  utsname name{};
  uname(&name);
  return {name.sysname, name.release, name.machine, gnu_get_libc_version()};
}

ProcessorFacts processor_facts() {
  return {.model = field_of("/proc/cpuinfo", "model name"),
          .logical_cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))),
          .usable_cores = launch::available_cores()};
}

uint64_t memory_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::vector<GpuFacts> gpu_facts() {
  std::vector<GpuFacts> gpus;
  for (const fs::path& gpu : launch::folder_entries("/proc/driver/nvidia/gpus")) {
    gpus.push_back({field_of(gpu / "information", "Model"), gpu.filename().string()});
  }
  if (gpus.empty()) {
    for (std::string& model : ask_nvidia_smi("name")) gpus.push_back({std::move(model)});
  }
  std::sort(gpus.begin(), gpus.end(), [](const GpuFacts& left, const GpuFacts& right) {
    return std::tie(left.model, left.bus) < std::tie(right.model, right.bus);
  });
  return gpus;
}

std::string gpu_driver_version() {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 ..."
  std::istringstream words(field_of("/proc/driver/nvidia/version", "NVRM version"));
  for (std::string word; words >> word;) {
    if (word.find('.') != std::string::npos && std::isdigit(static_cast<unsigned char>(word[0])))
      return word;
  }
  const std::vector<std::string> answer = ask_nvidia_smi("driver_version");
  return answer.empty() ? "" : answer.front();
}

std::string first_devices(const std::string& cuda_visible_devices) {
  std::string devices;
  for (const std::string& device : config::list_parts(cuda_visible_devices)) {
    if (device.empty() || device.starts_with("-")) break;
    devices += (devices.empty() ? "" : ",") + device;
  }
  return devices;
}

std::vector<uint64_t> gpu_memories() {
  std::vector<uint64_t> memories;
  const auto visible = environment_variable("CUDA_VISIBLE_DEVICES");
  const std::string ids = visible ? first_devices(*visible) : "";
  if (visible && ids.empty()) return memories;                           // all are hidden
  for (const std::string& line : ask_nvidia_smi("memory.total", ids)) {  // "81559 MiB"
    const uint64_t mebibytes = std::strtoull(line.c_str(), nullptr, 10);
    if (mebibytes > 0) memories.push_back(mebibytes << 20);
  }
  return memories;
}

PythonFacts python_facts() {
  PythonFacts facts{.path = launch::find_python()};
  if (facts.path.empty()) return facts;
  const auto answer = captured_command({facts.path, "-c", kPythonQuestion}, kPythonDeadline);
  const std::vector<std::string> lines = answer ? lines_of(*answer) : std::vector<std::string>{};
  if (!lines.empty()) facts.version = lines[0];
  if (lines.size() > 1) facts.torch = lines[1];
  return facts;
}

std::vector<std::string> relevant_variables() {
  std::vector<std::string> relevant;
  for (const std::string& variable : launch::current_environment()) {
    const std::string name = variable.substr(0, variable.find('='));
    const bool is_named =
        std::find(kRelevantNames.begin(), kRelevantNames.end(), name) != kRelevantNames.end();
    const bool has_prefix =
        std::any_of(kRelevantPrefixes.begin(), kRelevantPrefixes.end(),
                    [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (is_named || has_prefix) relevant.push_back(variable);
  }
  std::sort(relevant.begin(), relevant.end());
  return relevant;
}

}  // namespace accelerate::cli
