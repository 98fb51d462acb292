#include "cli/commands/kernel_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "cli/help/help_formatter.h"
#include "cli/reports/notebook_kernel.h"
#include "cli/reports/print_output.h"
#include "config/config_path.h"
#include "files/durable/replace_file.h"
#include "launch/plan/command_line.h"

namespace accelerate::cli {
namespace {

namespace fs = std::filesystem;

struct KernelOptions {
  enum class Action { kInstall, kList, kUninstall };
  Action action = Action::kList;
  std::string name = "accelerate-cpp";
  std::string display_name = "C++20 (Accelerate)";
  bool user = false;
  bool sys_prefix = false;
  std::string prefix;
  std::string python;
  std::string repl;
};

constexpr const char* kKernelFooter =
    R"(A notebook then offers C++ with this library and its libtorch loaded: docs/notebook.md.
It needs a Python with ipykernel and Debian's clang-tools-19.

Examples:
  accelerate kernel install
  accelerate kernel install --prefix /usr/local --name cpp
  accelerate kernel list
  accelerate kernel uninstall
)";

void check_kernel_name(const std::string& name) {
  const bool is_fit = !name.empty() && name != "." && name != ".." &&
                      std::all_of(name.begin(), name.end(), [](unsigned char c) {
                        return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                      });
  if (is_fit) return;
  throw UsageError({.what = "'" + name + "' cannot be the name of a kernel",
                    .where = "--name",
                    .hint = "letters, digits, '-', '_' and '.'"});
}

// Where the flags say; the user's folder without one.
fs::path chosen_folder(const KernelOptions& options) {
  if (!options.prefix.empty()) return prefix_kernels(options.prefix);
  if (!options.sys_prefix) return user_kernels();
  const std::string python = options.python.empty() ? launch::find_python() : options.python;
  return environment_kernels(python);
}

// Where Jupyter looks without being told.
std::vector<fs::path> usual_folders(const KernelOptions& options) {
  std::vector<fs::path> folders{user_kernels(), prefix_kernels("/usr/local"),
                                prefix_kernels("/usr")};
  if (!options.prefix.empty()) folders.push_back(prefix_kernels(options.prefix));
  if (options.sys_prefix) folders.push_back(chosen_folder(options));
  std::sort(folders.begin(), folders.end());
  folders.erase(std::unique(folders.begin(), folders.end()), folders.end());
  return folders;
}

// Ours may be written anew.
void refuse_other_kernel(const fs::path& folder) {
  std::error_code none;
  if (!fs::exists(fs::symlink_status(folder / "kernel.json", none))) return;
  const std::vector<InstalledKernel> ours = find_kernels({folder.parent_path()});
  const std::string name = folder.filename().string();
  if (std::any_of(ours.begin(), ours.end(), [&](const auto& k) { return k.name == name; })) return;
  throw UsageError({.what = "'" + name + "' is the kernel of another program",
                    .where = folder.string(),
                    .hint = "choose another name: --name NAME"});
}

int install_kernel(const KernelOptions& options) {
  check_kernel_name(options.name);
  const NotebookKernelParts parts = find_kernel_parts(options.python, options.repl);
  const fs::path folder = chosen_folder(options) / options.name;
  refuse_other_kernel(folder);
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) {
    throw config::FileWriteError({.what = "the folder cannot be created: " + failed.message(),
                                  .where = folder.string(),
                                  .hint = "name another one: --prefix PATH"});
  }
  const std::string specification = kernel_specification(parts, options.display_name);
  files::replace_file(folder / "kernel.json", [&](files::ByteSink& sink) {
    sink.write(std::as_bytes(std::span(specification)));
  });
  print_output("installed the kernel " + options.name + " in " + folder.string() +
               "\nIn Jupyter it is called " + options.display_name + ".\n");
  return 0;
}

int list_kernels(const KernelOptions& options) {
  const std::vector<InstalledKernel> kernels = find_kernels(usual_folders(options));
  if (kernels.empty()) {
    print_output("no kernel of Accelerate is installed; accelerate kernel install does it\n");
    return 0;
  }
  std::string text;
  for (const InstalledKernel& kernel : kernels) {
    text += kernel.name + "  " + kernel.display_name + "  " + kernel.folder.string() + "\n";
    for (const std::string& missing : kernel.missing) text += "  missing: " + missing + "\n";
  }
  print_output(text);
  const bool all_complete = std::all_of(kernels.begin(), kernels.end(),
                                        [](const auto& kernel) { return kernel.missing.empty(); });
  return all_complete ? 0 : 1;
}

int uninstall_kernel(const KernelOptions& options) {
  check_kernel_name(options.name);
  const fs::path folder = chosen_folder(options);
  for (const InstalledKernel& kernel : find_kernels({folder})) {
    if (kernel.name != options.name) continue;
    std::error_code failed;
    fs::remove(kernel.folder / "kernel.json", failed);
    // Only if nothing of somebody else is in it.
    std::error_code not_empty;
    if (!failed) fs::remove(kernel.folder, not_empty);
    if (failed) {
      throw config::FileWriteError({.what = "the kernel cannot be removed: " + failed.message(),
                                    .where = kernel.folder.string()});
    }
    print_output("removed the kernel " + options.name + " from " + folder.string() + "\n");
    return 0;
  }
  throw UsageError({.what = "no kernel of Accelerate has the name '" + options.name + "'",
                    .where = folder.string(),
                    .hint = "accelerate kernel list"});
}

int run_kernel_action(const KernelOptions& options) {
  switch (options.action) {
    case KernelOptions::Action::kInstall:
      return install_kernel(options);
    case KernelOptions::Action::kUninstall:
      return uninstall_kernel(options);
    case KernelOptions::Action::kList:
      break;
  }
  return list_kernels(options);
}

CLI::App* add_kernel_action(CLI::App& kernel, const char* name, const std::string& description,
                            KernelOptions::Action action,
                            const std::shared_ptr<KernelOptions>& options) {
  CLI::App* app =
      add_command(kernel, name, description, "accelerate kernel " + std::string(name) + " [flags]");
  app->callback([options, action] { options->action = action; });
  CLI::Option* user = app->add_flag("--user", options->user, "In the user's folder; the default");
  CLI::Option* sys_prefix = app->add_flag("--sys_prefix", options->sys_prefix,
                                          "In the environment of that Python, such as a venv");
  CLI::Option* prefix =
      app->add_option("--prefix", options->prefix, "In PATH/share/jupyter")->type_name("PATH");
  user->excludes(sys_prefix)->excludes(prefix);
  sys_prefix->excludes(prefix);
  app->add_option("--python", options->python, "A Python with ipykernel [python3]")
      ->type_name("PATH");
  return app;
}

}  // namespace

Command setup_kernel(CLI::App& app) {
  using Action = KernelOptions::Action;
  auto options = std::make_shared<KernelOptions>();
  CLI::App* kernel = add_command(app, "kernel", "Install the C++ kernel for Jupyter notebooks",
                                 "accelerate kernel install|list|uninstall [flags]");
  kernel->footer(kKernelFooter);
  kernel->require_subcommand(1);
  CLI::App* install = add_kernel_action(*kernel, "install", "Tell Jupyter about this library",
                                        Action::kInstall, options);
  install->add_option("--display_name", options->display_name, "In Jupyter [C++20 (Accelerate)]")
      ->type_name("TEXT");
  install->add_option("--repl", options->repl, "The interpreter [clang-repl-19]")
      ->type_name("PATH");
  CLI::App* uninstall =
      add_kernel_action(*kernel, "uninstall", "Remove a kernel", Action::kUninstall, options);
  for (CLI::App* command : {install, uninstall}) {
    command->add_option("--name", options->name, "Of the kernel [accelerate-cpp]")
        ->type_name("NAME");
  }
  add_kernel_action(*kernel, "list", "Kernels of Accelerate, and what they miss", Action::kList,
                    options);
  return {kernel, [options] { return run_kernel_action(*options); }};
}

}  // namespace accelerate::cli
