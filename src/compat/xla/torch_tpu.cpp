#include "compat/xla/torch_tpu.h"

#include <string>

#include "accelerate/errors.h"
#include "compat/xla/tpu_hardware.h"

namespace accelerate::compat {
namespace {

constexpr std::string_view kMetadata = ".dist-info";

// "torch_tpu 0.2.0", by the folder of its metadata; "" where it is not installed.
std::string installed_torch_tpu(const std::filesystem::path& packages) {
  constexpr std::string_view kName = "torch_tpu-";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(packages, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kName) || !name.ends_with(kMetadata)) continue;
    const size_t end = name.size() - kMetadata.size();
    return "torch_tpu " + name.substr(kName.size(), end - kName.size());
  }
  return "";
}

}  // namespace

void refuse_torch_tpu(const std::filesystem::path& packages, const std::filesystem::path& root) {
  const std::string installed = installed_torch_tpu(packages);
  if (installed.empty()) {
    throw ConfigError({.what = "torch_tpu is not installed beside torch",
                       .where = packages.string(),
                       .hint = "the device xla uses torch_xla: make deps-xla"});
  }
  if (!has_tpu(root)) {
    throw ConfigError({.what = installed + " needs a TPU, and this machine has none",
                       .where = packages.string(),
                       .hint = "train on the CPU, or on a machine with a TPU"});
  }
  throw ConfigError({.what = installed + " and a TPU are there, but this release does not train "
                                         "with torch_tpu yet",
                     .where = packages.string(),
                     .hint = "the device xla uses torch_xla: make deps-xla"});
}

}  // namespace accelerate::compat
