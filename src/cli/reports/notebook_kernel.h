// The kernel for Jupyter of this installation: what it is made of, and where Jupyter looks for
// kernels.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace accelerate::cli {

// What a kernel needs of this machine and of this installation, with absolute paths.
struct NotebookKernelParts {
  std::filesystem::path python{};                  // one that has ipykernel
  std::filesystem::path repl{};                    // clang-repl
  std::filesystem::path package{};                 // the folder that Python runs
  std::filesystem::path guard{};                   // preloaded into clang-repl
  std::vector<std::filesystem::path> libraries{};  // to load, in this order
  std::vector<std::filesystem::path> includes{};   // folders of headers
};

// Finds them. `python` and `repl`: a name or a path, "" for the usual ones. Throws
// InstallationError for the first one that is missing, with the command that installs it.
NotebookKernelParts find_kernel_parts(const std::string& python, const std::string& repl);

// The kernel.json from which Jupyter starts it.
std::string kernel_specification(const NotebookKernelParts& parts, const std::string& display_name);

// Folders of kernels: of the user, of a prefix, and of the environment of `python`.
std::filesystem::path user_kernels();
std::filesystem::path prefix_kernels(const std::filesystem::path& prefix);
// Throws InstallationError if `python` does not answer.
std::filesystem::path environment_kernels(const std::filesystem::path& python);

struct InstalledKernel {
  std::string name{};
  std::filesystem::path folder{};
  std::string display_name{};
  std::vector<std::string> missing{};  // files it names that are no longer there
};

// Those of `folders` that find_kernel_parts() made; other kernels are left out. By name.
std::vector<InstalledKernel> find_kernels(const std::vector<std::filesystem::path>& folders);

}  // namespace accelerate::cli
