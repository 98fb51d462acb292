#include "cli/env_libtorch.h"

#include <filesystem>
#include <fstream>

#include "launch/folder_entries.h"

namespace accelerate::cli {
namespace {

namespace fs = std::filesystem;

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

std::string describe_nccl(const fs::path& packages) {
  const fs::path in_wheel = packages / "nvidia" / "nccl" / "lib" / "libnccl.so.2";
  for (const fs::path& path :
       {in_wheel, fs::path("/usr/lib/x86_64-linux-gnu/libnccl.so.2"),
        fs::path("/usr/lib/aarch64-linux-gnu/libnccl.so.2"), fs::path("/usr/lib64/libnccl.so.2")}) {
    if (!is_file(path)) continue;
    const std::string version = path == in_wheel ? wheel_version(packages, "nvidia_nccl") : "";
    return "nccl" + (version.empty() ? "" : " " + version) + " at " + path.string();
  }
  return "";
}

}  // namespace

LibtorchFacts find_libtorch() {
  LibtorchFacts facts;
  const fs::path folder = ACCELERATE_LIBTORCH_DIR;
  if (!is_file(folder / "libtorch_cpu.so")) return facts;
  facts.folder = folder.string();
  const fs::path torch_folder = folder.parent_path();
  facts.version = version_in(torch_folder);
  facts.has_cuda = is_file(folder / "libtorch_cuda.so");
  facts.backends.emplace_back("gloo");
  const std::string nccl = describe_nccl(torch_folder.parent_path());
  if (facts.has_cuda && !nccl.empty()) facts.backends.push_back(nccl);
  return facts;
}

}  // namespace accelerate::cli
