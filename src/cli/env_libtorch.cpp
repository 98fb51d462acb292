#include "cli/env_libtorch.h"

#include <link.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>

#include "cli/captured_command.h"
#include "cli/selftest_program.h"
#include "launch/folder_entries.h"

namespace accelerate::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libtorch_cpu.so";
constexpr std::chrono::milliseconds kLoaderDeadline{10000};  // gigabytes may be on a cold disk

bool is_file(const fs::path& path) {
  std::error_code no_file;
  return fs::is_regular_file(path, no_file);
}

// version.py of the wheel has a line __version__ = '2.11.0+cu130'.
std::string version_in(const fs::path& torch_folder) {
  std::ifstream file(torch_folder / "version.py");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("__version__")) continue;
    const size_t begin = line.find('\'');
    const size_t end = line.rfind('\'');
    if (begin != std::string::npos && end > begin) return line.substr(begin + 1, end - begin - 1);
  }
  std::ifstream plain(torch_folder / "build-version");  // libtorch without Python
  std::string version;
  std::getline(plain, version);
  return version;
}

// "nvidia_nccl_cu13-2.28.9.dist-info" -> "2.28.9"
std::string wheel_version(const fs::path& packages, const std::string& name) {
  for (const fs::path& path : launch::folder_entries(packages)) {
    const std::string entry = path.filename().string();
    const size_t dash = entry.find('-');
    if (!entry.starts_with(name) || !entry.ends_with(".dist-info") || dash == std::string::npos) {
      continue;
    }
    return entry.substr(dash + 1, entry.rfind(".dist-info") - dash - 1);
  }
  return "";
}

std::optional<BackendFacts> find_nccl(const fs::path& packages) {
  const fs::path in_wheel = packages / "nvidia" / "nccl" / "lib" / "libnccl.so.2";
  for (const fs::path& path :
       {in_wheel, fs::path("/usr/lib/x86_64-linux-gnu/libnccl.so.2"),
        fs::path("/usr/lib/aarch64-linux-gnu/libnccl.so.2"), fs::path("/usr/lib64/libnccl.so.2")}) {
    if (!is_file(path)) continue;
    const std::string version = path == in_wheel ? wheel_version(packages, "nvidia_nccl") : "";
    return BackendFacts{.name = "nccl", .version = version, .path = path.string()};
  }
  return std::nullopt;
}

// The dynamic loader of this program, "" in a static one.
std::string dynamic_loader() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* result) {
        const std::string name = fs::path(object->dlpi_name).filename().string();
        if (!name.starts_with("ld-") && !name.starts_with("ld64")) return 0;
        *static_cast<std::string*>(result) = object->dlpi_name;
        return 1;
      },
      &found);
  return found;
}

// The folder where the loader finds libtorch for `program`, which does not run; "" if nowhere,
// nothing if the loader does not say.
std::optional<fs::path> loaded_folder(const fs::path& program) {
  const std::string loader = dynamic_loader();
  if (loader.empty()) return std::nullopt;
  const auto list = captured_command({loader, "--list", program.string()}, kLoaderDeadline);
  if (!list) return std::nullopt;
  const std::string arrow = std::string(kLibrary) + " => ";  // a line: name => path (0x7f...)
  const size_t found = list->find(arrow);
  if (found == std::string::npos) return std::nullopt;
  const size_t begin = found + arrow.size();
  const size_t end = std::min(list->find(" (0x", begin), list->find('\n', begin));
  const fs::path path = list->substr(begin, end - begin);
  return path.is_absolute() ? path.lexically_normal().parent_path() : fs::path();
}

}  // namespace

LibtorchFacts find_libtorch() {
  LibtorchFacts facts;
  const auto program = find_selftest_program();
  const auto loaded = program ? loaded_folder(*program) : std::nullopt;
  const fs::path folder = loaded.value_or(ACCELERATE_LIBTORCH_DIR);
  if (!is_file(folder / kLibrary)) return facts;
  facts.folder = folder.string();
  const fs::path torch_folder = folder.parent_path();
  facts.version = version_in(torch_folder);
  facts.has_cuda = is_file(folder / "libtorch_cuda.so");
  facts.backends.push_back({.name = "gloo"});
  const auto nccl = find_nccl(torch_folder.parent_path());
  if (facts.has_cuda && nccl) facts.backends.push_back(*nccl);
  return facts;
}

}  // namespace accelerate::cli
