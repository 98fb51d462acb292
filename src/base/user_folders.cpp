#include "base/user_folders.h"

#include <pwd.h>
#include <unistd.h>

#include "base/environment.h"

namespace accelerate {
namespace {

namespace fs = std::filesystem;

std::string home_folder() {
  if (const auto home = environment_variable("HOME"); home && !home->empty()) return *home;
  const passwd* user = getpwuid(getuid());
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "/";
}

}  // namespace

fs::path expanded_path(const std::string& path) {
  if (path == "~") return home_folder();
  if (path.starts_with("~/")) return fs::path(home_folder()) / path.substr(2);
  return path;
}

std::optional<fs::path> folder_variable(const char* name) {
  const auto value = environment_variable(name);
  return value && !value->empty() ? std::optional(expanded_path(*value)) : std::nullopt;
}

fs::path hugging_face_folder() {
  if (const auto home = folder_variable("HF_HOME")) return *home;
  return folder_variable("XDG_CACHE_HOME").value_or(expanded_path("~/.cache")) / "huggingface";
}

}  // namespace accelerate
