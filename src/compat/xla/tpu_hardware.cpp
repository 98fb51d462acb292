#include "compat/xla/tpu_hardware.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <string_view>

namespace accelerate::compat {
namespace {

constexpr std::string_view kVendor = "0x1ae0";  // Google
// Of Google's devices on a PCI bus the TPUs, from version 2 on; others are network cards and disks.
constexpr std::array<std::string_view, 7> kTpus = {"0x0027", "0x0056", "0x005e", "0x0062",
                                                   "0x0063", "0x006f", "0x0076"};

std::string first_word(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return word;
}

}  // namespace

bool has_tpu(const std::filesystem::path& root) {
  std::error_code error;
  if (std::filesystem::exists(root / "dev/accel0", error)) return true;
  const auto devices = root / "sys/bus/pci/devices";
  for (const auto& device : std::filesystem::directory_iterator(devices, error)) {
    if (first_word(device.path() / "vendor") != kVendor) continue;
    if (std::ranges::find(kTpus, first_word(device.path() / "device")) != kTpus.end()) return true;
  }
  return false;
}

}  // namespace accelerate::compat
