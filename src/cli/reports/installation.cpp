#include "cli/reports/installation.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "launch/plan/folder_entries.h"

namespace accelerate::cli {

namespace fs = std::filesystem;

namespace {

// Set by the build of the wheel: the name of the Python package that holds the library, while the
// program is in the folder of scripts.
constexpr const char* kPythonPackage = ACCELERATE_PYTHON_PACKAGE;

bool is_directory_of_installation(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

// Newest Python first: the number behind "python3.".
int python_minor_version(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const size_t dot = name.find('.');
  return dot == std::string::npos ? 0 : std::atoi(name.c_str() + dot + 1);
}

// Environments, user installations, Debian's /usr/local, and pip install --target, in this order.
fs::path python_package_folder() {
  const fs::path prefix = own_folder().parent_path();
  std::vector<fs::path> pythons;
  for (const char* libraries : {"lib", "lib64"}) {
    for (const fs::path& folder : launch::folder_entries(prefix / libraries)) {
      if (folder.filename().string().starts_with("python3")) pythons.push_back(folder);
    }
  }
  // The newest Python first; of the same, the one in lib.
  std::sort(pythons.begin(), pythons.end(), [](const fs::path& one, const fs::path& other) {
    return std::pair(-python_minor_version(one), one) <
           std::pair(-python_minor_version(other), other);
  });
  for (const fs::path& python : pythons) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      const fs::path candidate = python / packages / kPythonPackage;
      if (is_directory_of_installation(candidate)) return candidate;
    }
  }
  return prefix / kPythonPackage;
}

}  // namespace

fs::path own_folder() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none).parent_path();
}

Installation find_installation() {
  if (*kPythonPackage != '\0') {
    const fs::path package = python_package_folder();
    return {.prefix = package, .libraries = package / "lib", .is_python_package = true};
  }
  std::error_code none;
  const fs::path prefix = fs::weakly_canonical(own_folder() / ACCELERATE_PREFIX_FROM_BIN, none);
  const fs::path installed = prefix / ACCELERATE_LIBRARY_DIR;
  const fs::path in_build = prefix / "lib";
  // Both may exist (/usr/lib): only the right one has a folder of ours.
  const bool is_build = !is_directory_of_installation(installed / "accelerate") &&
                        is_directory_of_installation(in_build / "accelerate");
  return {.prefix = prefix, .libraries = is_build ? in_build : installed};
}

fs::path cmake_prefix() {
  const Installation installation = find_installation();
  const fs::path config =
      installation.libraries / "cmake" / "Accelerate" / "AccelerateConfig.cmake";
  std::error_code none;
  if (fs::is_regular_file(config, none)) return installation.prefix;
  throw InstallationError({.what = "the CMake files of Accelerate are not installed",
                           .where = config.string(),
                           .hint = "make install, or the Debian package libaccelerate-dev"});
}

}  // namespace accelerate::cli
