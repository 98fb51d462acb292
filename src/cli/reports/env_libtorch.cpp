#include "cli/reports/env_libtorch.h"

#include <link.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/word_list.h"
#include "cli/reports/captured_command.h"
#include "cli/reports/installation.h"
#include "cli/reports/selftest_program.h"
#include "launch/plan/folder_entries.h"

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

// Whether this program's build can use it is what `built with` says.
std::optional<BackendFacts> find_torch_xla(const fs::path& packages) {
  const std::string version = version_in(packages / "torch_xla");
  if (version.empty()) return std::nullopt;
  return BackendFacts{.name = "xla", .version = version, .path = (packages / "torch_xla").string()};
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

// What the dynamic loader says about a program, which does not run.
struct LoaderAnswer {
  fs::path libtorch{};                   // the folder of libtorch_cpu.so; "" if it is not found
  std::vector<std::string> not_found{};  // libraries without a file
};

// Nothing if the loader does not say, as for a script.
std::optional<LoaderAnswer> ask_loader(const fs::path& program) {
  const std::string loader = dynamic_loader();
  if (loader.empty()) return std::nullopt;
  // As ldd does it: --list would stop at the first library that is missing.
  const auto list = captured_command(
      {"/usr/bin/env", "LD_TRACE_LOADED_OBJECTS=1", loader, program.string()}, kLoaderDeadline);
  if (!list) return std::nullopt;
  LoaderAnswer answer;
  bool names_libtorch = false;
  std::istringstream lines(*list);
  for (std::string line; std::getline(lines, line);) {  // name => path (0x7f...)
    const size_t arrow = line.find(" => ");
    if (arrow == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t");
    const std::string name = line.substr(begin, arrow - begin);
    const std::string path = line.substr(arrow + 4, line.rfind(" (0x") - arrow - 4);
    const bool is_found = path.starts_with("/");
    if (!is_found) answer.not_found.push_back(name);
    if (name != kLibrary) continue;
    names_libtorch = true;
    std::error_code none;  // through the link that names libtorch to the folder itself
    if (is_found) answer.libtorch = fs::weakly_canonical(fs::path(path).parent_path(), none);
  }
  if (!names_libtorch) return std::nullopt;
  return answer;
}

std::string minor_version(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

// The link by which the installation was told of libtorch. A Debian package has one in /usr that
// leads to this one, which belongs to the administrator.
fs::path told_link(const Installation& installation) {
  const fs::path link = installation.libraries / "accelerate" / "libtorch";
  const fs::path of_administrator = "/etc/accelerate/libtorch";
  std::error_code none;
  return fs::read_symlink(link, none) == of_administrator ? of_administrator : link;
}

LibtorchProblem missing_libtorch(const Installation& installation) {
  const std::string wanted = "libtorch " + minor_version(ACCELERATE_LIBTORCH_VERSION);
  const fs::path link = told_link(installation);
  std::error_code none;
  const fs::path told = fs::read_symlink(link, none);
  if (installation.is_python_package && told.empty()) {
    return {
        .what = wanted + " is missing: there is no torch beside " + installation.prefix.string(),
        .hint = "pip install 'torch==" + minor_version(ACCELERATE_LIBTORCH_VERSION) + ".*'"};
  }
  return {.what = wanted + " is missing: " + link.string() +
                  (told.empty() ? " does not name its folder"
                                : " names " + told.string() + ", which holds none"),
          .hint = "ln -sfn /path/to/torch " + link.string()};
}

LibtorchProblem problem_of(const LibtorchFacts& facts, const std::vector<std::string>& not_found,
                           const Installation& installation) {
  const std::string built_for = minor_version(ACCELERATE_LIBTORCH_VERSION);
  if (facts.folder.empty()) return missing_libtorch(installation);
  if (!not_found.empty()) {
    return {.what = "programs cannot be loaded: " + listed(not_found) +
                    " cannot be found, needed by or beside libtorch at " + facts.folder,
            .hint = "install what this torch requires, or name a complete one"};
  }
  if (!facts.version.empty() && minor_version(facts.version) != built_for) {
    return {.what = "libtorch at " + facts.folder + " is version " + facts.version +
                    ", Accelerate was built with " + built_for,
            .hint = "ln -sfn /path/to/torch " + told_link(installation).string()};
  }
  return {};
}

fs::path told_folder(const Installation& installation) {
  fs::path folder = installation.libraries / "accelerate" / "libtorch" / "lib";
  if (!is_file(folder / kLibrary) && installation.is_python_package) {
    folder = installation.prefix.parent_path() / "torch" / "lib";
  }
  std::error_code none;
  return fs::weakly_canonical(folder, none);
}

}  // namespace

LibtorchFacts find_libtorch() {
  LibtorchFacts facts;
  const Installation installation = find_installation();
  const auto program = find_selftest_program();
  const auto answer = program ? ask_loader(*program) : std::nullopt;
  const fs::path folder = answer ? answer->libtorch : told_folder(installation);
  if (is_file(folder / kLibrary)) {
    facts.folder = folder.string();
    const fs::path torch_folder = folder.parent_path();
    facts.version = version_in(torch_folder);
    facts.has_cuda = is_file(folder / "libtorch_cuda.so");
    facts.backends.push_back({.name = "gloo"});
    const auto nccl = find_nccl(torch_folder.parent_path());
    if (facts.has_cuda && nccl) facts.backends.push_back(*nccl);
    if (const auto xla = find_torch_xla(torch_folder.parent_path())) {
      facts.backends.push_back(*xla);
    }
  }
  facts.is_asked_of_loader = answer.has_value();
  facts.problem =
      problem_of(facts, answer ? answer->not_found : std::vector<std::string>(), installation);
  return facts;
}

}  // namespace accelerate::cli
