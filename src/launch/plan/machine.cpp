#include "launch/plan/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "base/host_name.h"
#include "launch/plan/folder_entries.h"

namespace accelerate::launch {

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

std::string short_host_name() {
  const std::string full = host_name();
  return full.substr(0, full.find('.'));
}

int present_gpus() {
  int count = 0;
  for (const auto& path : folder_entries("/dev")) {
    const std::string name = path.filename().string();
    if (!name.starts_with("nvidia") || name.size() == 6) continue;
    if (std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c); }))
      ++count;
  }
  return count;
}

int count_visible_devices(const char* cuda_visible_devices) {
  int count = 0;
  std::string_view rest = cuda_visible_devices;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view device = rest.substr(0, comma);
    if (device.empty() || device.starts_with("-")) break;
    ++count;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return count;
}

int visible_gpus() {
  const int present = present_gpus();
  const char* named = std::getenv("CUDA_VISIBLE_DEVICES");
  if (present == 0 || named == nullptr) return present;
  return count_visible_devices(named);
}

}  // namespace accelerate::launch
