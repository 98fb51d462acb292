#include "launch/plan/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/printable_text.h"
#include "base/word_list.h"
#include "launch/plan/folder_entries.h"

namespace accelerate::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kStatusNotFound = 127;
constexpr int kNotExecutable = 126;

bool is_runnable(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

// The programs in a folder that was named in place of one of them.
std::string hint_on_directory(const std::string& path) {
  constexpr size_t kMost = 3;
  std::vector<std::string> programs;
  for (const fs::path& entry : folder_entries(path)) {
    if (is_runnable(entry)) programs.push_back(entry.string());
  }
  if (programs.empty()) return "name the file of the program; this folder contains none";
  std::sort(programs.begin(), programs.end());
  if (programs.size() > kMost) programs.resize(kMost);
  return "name a program in it: " + listed(programs, "or");
}

void require_file(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    throw ProgramError(kStatusNotFound, {.what = "program '" + path + "' not found: no such file"});
  }
  if (status.type() == fs::file_type::directory) {
    throw ProgramError(kNotExecutable, {.what = "'" + path + "' is a directory, not a program",
                                        .hint = hint_on_directory(path)});
  }
}

void require_executable(const std::string& path) {
  require_file(path);
  if (access(path.c_str(), X_OK) == 0) return;
  throw ProgramError(kNotExecutable, {.what = "'" + path + "' may not be executed",
                                      .hint = "run `chmod +x " + path +
                                              "`, or name the interpreter before the script"});
}

std::string resolve_executable(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    require_executable(program);
    return program;
  }
  std::string found = find_in_path(program);
  if (!found.empty()) return found;
  std::error_code ignored;
  const bool here = fs::exists(program, ignored);
  throw ProgramError(
      kStatusNotFound,
      {.what = "program '" + program + "' not found in PATH",
       .hint = here ? "a file of this name is in the current folder: run ./" + program
                    : std::string("check the name, or give the path of the file")});
}

// What the variable PYTHON names, or nullptr.
const char* python_variable() {
  const char* named = std::getenv("PYTHON");
  return named != nullptr && *named != '\0' ? named : nullptr;
}

std::string resolve_python() {
  if (std::string found = find_python(); !found.empty()) return found;
  if (const char* named = python_variable()) return resolve_executable(named);
  throw ProgramError(kStatusNotFound,
                     {.what = "no python3 or python in PATH to run a Python program",
                      .hint = "install Python, or name it in the variable PYTHON"});
}

}  // namespace

std::string find_in_path(const std::string& program) {
  if (program.empty()) return "";
  if (program.find('/') != std::string::npos) return is_runnable(program) ? program : "";
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const size_t colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / program;
    if (is_runnable(candidate)) return candidate.string();
    if (colon == std::string_view::npos) return "";
    rest.remove_prefix(colon + 1);
  }
}

std::string find_python() {
  if (const char* named = python_variable()) return find_in_path(named);
  const std::string python3 = find_in_path("python3");
  return python3.empty() ? find_in_path("python") : python3;
}

std::vector<std::string> worker_command(ProgramKind kind, const std::string& program,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> command;
  if (kind == ProgramKind::kModule) {
    command = {resolve_python(), "-m", program};
  } else if (kind == ProgramKind::kAuto && program.ends_with(".py")) {
    require_file(program);
    command = {resolve_python(), program};
  } else {
    command = {resolve_executable(program)};
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

bool runs_python(const std::vector<std::string>& command) {
  if (command.empty()) return false;
  const std::string name = fs::path(command[0]).filename().string();
  return name.starts_with("python") || name.ends_with(".py") || command[0] == find_python();
}

std::string program_name(const std::vector<std::string>& command) {
  if (command.empty()) return "";
  const std::string first = fs::path(command[0]).filename().string();
  const bool has_script = first.starts_with("python") && command.size() > 1;
  if (has_script && command[1].ends_with(".py")) {
    return printable_text(fs::path(command[1]).filename().string());
  }
  if (has_script && command[1] == "-m" && command.size() > 2) return printable_text(command[2]);
  return printable_text(first);
}

}  // namespace accelerate::launch
