#include "compat/xla/installation.h"

#include <c10/core/TensorImpl.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <fstream>

#include "accelerate/errors.h"

namespace accelerate::compat {
namespace {

constexpr const char* kInstall = "make deps-xla";
constexpr const char* kExtension = "_XLAC.cpython-311-x86_64-linux-gnu.so";
constexpr const char* kStandIns = "accelerate_xla";

[[noreturn]] void refuse_installation(std::string what, const std::filesystem::path& where,
                                      std::string hint) {
  throw ConfigError({.what = std::move(what), .where = where.string(), .hint = std::move(hint)});
}

// "torch_xla 2.9.0 with torch 2.9.0".
std::string pair_text(const std::string& xla, const std::string& torch) {
  return "torch_xla " + xla + " with torch " + torch;
}

std::filesystem::path file_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  auto file = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::filesystem::path(info.dli_fname) : file;
}

}  // namespace

XlaSearch own_xla_search() {
  // packages/torch/lib/libc10.so
  const auto torch_lib = file_of(reinterpret_cast<const void*>(&c10::GetAllocator)).parent_path();
  const auto folder = file_of(reinterpret_cast<const void*>(&own_xla_search)).parent_path();
  std::filesystem::path stand_ins = folder / kStandIns;
  // A program that holds this function itself, as some tests do, is in a folder beside lib.
  if (!std::filesystem::exists(stand_ins)) stand_ins = folder / ".." / "lib" / kStandIns;
  return {.packages = torch_lib.parent_path().parent_path(),
          .stand_ins = stand_ins,
          .torch = TORCH_VERSION};
}

std::optional<std::string> version_in(const std::filesystem::path& version_py) {
  std::ifstream file(version_py);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("__version__")) continue;
    const size_t begin = line.find_first_of("'\"");
    if (begin == std::string::npos) continue;
    return line.substr(begin + 1, line.find_first_of("'\"+", begin + 1) - begin - 1);
  }
  return std::nullopt;
}

XlaInstallation find_xla(const XlaSearch& search) {
  if (search.torch != kTorchOfXla) {
    refuse_installation(
        "this library was built with torch " + search.torch + ", and XLA devices need " +
            pair_text(kXlaRelease, kTorchOfXla),
        "", std::string("build it with that pair: ") + kInstall + " and make build PRESET=xla");
  }
  const auto xla = version_in(search.packages / "torch_xla" / "version.py");
  if (!xla) {
    refuse_installation("torch_xla is not installed beside torch", search.packages,
                        std::string(kInstall) +
                            " installs both, and a build with PRESET=xla "
                            "uses them");
  }
  const std::string torch =
      version_in(search.packages / "torch" / "version.py").value_or("of an unknown version");
  if (*xla != kXlaRelease || torch != kTorchOfXla) {
    refuse_installation(pair_text(*xla, torch) + " cannot be used: XLA devices need " +
                            pair_text(kXlaRelease, kTorchOfXla),
                        search.packages, std::string(kInstall) + " installs that pair");
  }
  XlaInstallation found{.library = search.packages / kExtension, .stand_ins = search.stand_ins};
  if (!std::filesystem::exists(found.library)) {
    refuse_installation(std::string("torch_xla is there without ") + kExtension, search.packages,
                        std::string(kInstall) + " installs the one for Python 3.11");
  }
  if (!std::filesystem::exists(found.stand_ins)) {
    refuse_installation("the libraries that stand in for Python's are missing", found.stand_ins,
                        "install all of one build of Accelerate");
  }
  return found;
}

}  // namespace accelerate::compat
