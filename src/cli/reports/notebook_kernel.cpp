#include "cli/reports/notebook_kernel.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/environment.h"
#include "base/user_folders.h"
#include "cli/reports/captured_command.h"
#include "cli/reports/env_libtorch.h"
#include "cli/reports/installation.h"
#include "launch/plan/command_line.h"
#include "launch/plan/folder_entries.h"

namespace accelerate::cli {

namespace fs = std::filesystem;

namespace {

using nlohmann::ordered_json;

constexpr std::chrono::seconds kPythonAnswersWithin{20};
constexpr const char* kPackageName = "accelerate_kernel";
constexpr const char* kGuardName = "libaccelerate_repl_guard.so";

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

fs::path require_part(const fs::path& path, const char* hint) {
  if (is_there(path)) return path.lexically_normal();
  throw InstallationError({.what = "a part of the kernel for notebooks is not installed",
                           .where = path.string(),
                           .hint = hint});
}

fs::path find_kernel_python(const std::string& named) {
  const fs::path python = named.empty() ? launch::find_python() : launch::find_in_path(named);
  if (python.empty()) {
    throw InstallationError({.what = named.empty() ? "there is no python3 in PATH"
                                                   : "there is no '" + named + "' to run",
                             .hint = "apt-get install python3, or name one: --python PATH"});
  }
  if (!captured_command({python, "-c", "import ipykernel"}, kPythonAnswersWithin)) {
    throw InstallationError(
        {.what = "this Python has no ipykernel",
         .where = python.string(),
         .hint = python.string() + " -m pip install ipykernel, or name another: --python PATH"});
  }
  return fs::absolute(python);
}

fs::path find_repl(const std::string& named) {
  const std::string repl = launch::find_in_path(named.empty() ? "clang-repl-19" : named);
  if (!repl.empty()) return fs::absolute(repl);
  throw InstallationError({.what = named.empty() ? "there is no clang-repl-19 in PATH"
                                                 : "there is no '" + named + "' to run",
                           .hint = "apt-get install clang-tools-19"});
}

}  // namespace

NotebookKernelParts find_kernel_parts(const std::string& python, const std::string& repl) {
  constexpr const char* kInstall = "make install, or the Debian packages";
  const Installation installation = find_installation();
  const fs::path kernel = installation.libraries / "accelerate" / "jupyter";
  NotebookKernelParts parts;
  parts.package = require_part(kernel / kPackageName, kInstall);
  parts.guard = require_part(kernel / kGuardName, kInstall);
  const fs::path headers = installation.prefix / "include";
  require_part(headers / "accelerate" / "accelerate.h",
               "make install, or the Debian package libaccelerate-dev");
  parts.python = find_kernel_python(python);
  parts.repl = find_repl(repl);
  const LibtorchFacts torch = find_libtorch();
  if (torch.folder.empty()) {
    throw InstallationError({.what = torch.problem.what, .hint = torch.problem.hint});
  }
  const fs::path torch_libraries = torch.folder;
  const fs::path torch_headers = torch_libraries.parent_path() / "include";
  parts.libraries = {torch_libraries / "libtorch_cpu.so",
                     installation.libraries / "libaccelerate.so"};
  const fs::path transformers = installation.libraries / "libaccelerate_transformers.so";
  if (is_there(transformers)) parts.libraries.push_back(transformers);
  parts.includes = {headers, torch_headers, torch_headers / "torch/csrc/api/include"};
  return parts;
}

std::string kernel_specification(const NotebookKernelParts& parts,
                                 const std::string& display_name) {
  std::vector<std::string> command = {parts.python, parts.package, "--repl",
                                      parts.repl,   "--guard",     parts.guard};
  for (const fs::path& library : parts.libraries) {
    command.insert(command.end(), {"--library", library});
  }
  for (const fs::path& folder : parts.includes) {
    command.insert(command.end(), {"--include", folder});
  }
  command.insert(command.end(), {"-f", "{connection_file}"});
  const ordered_json specification = {{"argv", command},
                                      {"display_name", display_name},
                                      {"language", "c++"},
                                      {"interrupt_mode", "signal"},
                                      {"metadata", {{"debugger", false}}}};
  return specification.dump(2) + "\n";
}

// As jupyter_core finds it.
fs::path user_kernels() {
  if (const auto data = folder_variable("JUPYTER_DATA_DIR")) return *data / "kernels";
  const auto share = folder_variable("XDG_DATA_HOME");
  return (share ? *share : expanded_path("~/.local/share")) / "jupyter" / "kernels";
}

fs::path prefix_kernels(const fs::path& prefix) {
  return fs::absolute(prefix) / "share" / "jupyter" / "kernels";
}

fs::path environment_kernels(const fs::path& python) {
  const auto prefix =
      captured_command({python, "-c", "import sys; print(sys.prefix)"}, kPythonAnswersWithin);
  if (prefix) return prefix_kernels(*prefix);
  throw InstallationError({.what = "this Python does not answer", .where = python.string()});
}

namespace {

// Nothing where the file is not the specification of one of our kernels.
std::optional<InstalledKernel> read_kernel(const fs::path& folder) {
  std::ifstream in(folder / "kernel.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const ordered_json specification = ordered_json::parse(text, nullptr, false);
  if (!specification.is_object() || !specification.contains("argv")) return std::nullopt;
  std::vector<std::string> command;
  for (const ordered_json& word : specification["argv"]) {
    if (!word.is_string()) return std::nullopt;
    command.push_back(word);
  }
  if (command.size() < 2 || fs::path(command[1]).filename() != kPackageName) return std::nullopt;
  InstalledKernel kernel{.name = folder.filename().string(), .folder = folder};
  if (specification.contains("display_name") && specification["display_name"].is_string()) {
    kernel.display_name = specification["display_name"];
  }
  for (const std::string& word : command) {
    if (word.starts_with("/") && !is_there(word)) kernel.missing.push_back(word);
  }
  return kernel;
}

}  // namespace

std::vector<InstalledKernel> find_kernels(const std::vector<fs::path>& folders) {
  std::vector<InstalledKernel> kernels;
  for (const fs::path& folder : folders) {
    for (const fs::path& entry : launch::folder_entries(folder)) {
      if (auto kernel = read_kernel(entry)) kernels.push_back(std::move(*kernel));
    }
  }
  std::sort(kernels.begin(), kernels.end(), [](const auto& one, const auto& other) {
    return std::pair(one.name, one.folder) < std::pair(other.name, other.folder);
  });
  return kernels;
}

}  // namespace accelerate::cli
