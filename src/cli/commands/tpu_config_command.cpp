#include "cli/commands/tpu_config_command.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/errors.h"
#include "base/word_list.h"
#include "cli/commands/launch_command.h"
#include "cli/help/help_formatter.h"
#include "config/settings.h"
#include "config/value.h"

namespace accelerate::cli {
namespace {

constexpr const char* kTpuConfigFooter =
    R"(Each machine runs the commands one after the other, in /usr/share. gcloud must be installed here
and logged in.

Examples:
  accelerate tpu-config --tpu_name pod --tpu_zone us-central1-a --command "apt-get update" --debug
  accelerate tpu-config --config_file pod.yaml --command_file set_up.sh
)";

struct TpuConfigOptions {
  std::string config_file;
  std::string tpu_name;
  std::string tpu_zone;
  bool use_alpha = false;
  std::string command_file;
  std::vector<std::string> commands;
  bool install_accelerate = false;
  std::string accelerate_version = "latest";
  bool debug = false;
};

std::vector<std::string> commands_in_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw ConfigError(
        {.what = "the file of commands cannot be read: " + std::string(std::strerror(errno)),
         .where = path,
         .hint = "--command_file names a file with one command a line"});
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    // A comment, such as #!/bin/bash, would hide all that is joined after it.
    const size_t begin = line.find_first_not_of(" \t");
    if (begin != std::string::npos && line[begin] != '#') lines.push_back(line);
  }
  return lines;
}

// A '#' that may begin a comment behind a command reaches to the end of its line.
bool may_have_comment(const std::string& command) {
  for (size_t at = command.find('#'); at != std::string::npos; at = command.find('#', at + 1)) {
    if (at == 0 || std::string_view(" \t;&|()").find(command[at - 1]) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

// In one text for a shell: "a; b".
std::string script_of(const std::vector<std::string>& commands) {
  std::string script;
  for (const std::string& command : commands) {
    if (!script.empty()) script += script.ends_with('\n') ? "" : "; ";
    script += command;
    if (may_have_comment(command)) script += '\n';
  }
  if (script.ends_with('\n')) script.pop_back();
  return script;
}

// It goes into the shell of the pod.
void check_version(const std::string& version) {
  const bool is_fit =
      !version.empty() && std::all_of(version.begin(), version.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '+' || c == '!';
      });
  if (is_fit) return;
  throw UsageError({.what = "'" + version + "' cannot be a version of accelerate",
                    .where = "--accelerate_version",
                    .hint = "latest, dev, or a version such as 1.0.0"});
}

// gcloud would take it for a flag.
void check_name(const std::string& name, const char* flag) {
  if (!name.starts_with('-')) return;
  throw UsageError({.what = "'" + name + "' cannot be a name: it begins with '-'", .where = flag});
}

// What pip is told: "accelerate -U", "accelerate==1.0.0".
std::string package_of(const std::string& version) {
  if (version == "latest") return "accelerate -U";
  if (version == "dev") return "git+https://github.com/huggingface/accelerate.git";
  return "accelerate==" + version;
}

// Flags first, then the configuration file; a file of commands before commands of a configuration.
void complete_from_file(TpuConfigOptions& options) {
  const auto file = find_config_file(options.config_file);
  if (!file) return;
  const config::Settings settings = settings_of_run({}, &*file);
  const auto take = [&](std::string& own, const char* name) {
    if (own.empty()) own = settings.text(name);
  };
  take(options.tpu_name, "tpu_name");
  take(options.tpu_zone, "tpu_zone");
  if (!options.commands.empty()) return;
  take(options.command_file, "command_file");
  if (options.command_file.empty()) {
    options.commands = config::list_parts(settings.text("commands"));
  }
}

void require_given(const std::string& text, const char* what, const char* flag) {
  if (!text.empty()) return;
  throw UsageError({.what = std::string(what) + " is not known",
                    .hint = std::string(flag) + ", or the configuration file says it"});
}

// The command line of gcloud.
std::vector<std::string> gcloud_words(const TpuConfigOptions& options) {
  std::vector<std::string> commands{"cd /usr/share"};
  if (options.install_accelerate) {
    commands.push_back("pip install " + package_of(options.accelerate_version));
  }
  commands.insert(commands.end(), options.commands.begin(), options.commands.end());
  std::vector<std::string> words{"gcloud"};
  if (options.use_alpha) words.emplace_back("alpha");
  for (const std::string& word :
       {std::string("compute"), std::string("tpus"), std::string("tpu-vm"), std::string("ssh"),
        options.tpu_name, std::string("--zone"), options.tpu_zone, std::string("--command"),
        script_of(commands), std::string("--worker"), std::string("all")}) {
    words.push_back(word);
  }
  return words;
}

int status_of_program(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ);
  if (error != 0) {
    throw ConfigError({.what = words[0] + " cannot be started: " + std::strerror(error),
                       .where = "tpu-config",
                       .hint = "install the Google Cloud CLI, or see with --debug what would run"});
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_tpu_config(TpuConfigOptions options) {
  complete_from_file(options);
  if (!options.command_file.empty()) options.commands = commands_in_file(options.command_file);
  if (options.commands.empty()) {
    throw UsageError({.what = "there is nothing to run in the pod",
                      .hint = "--command \"apt-get update\", or --command_file set_up.sh"});
  }
  require_given(options.tpu_name, "the TPU", "--tpu_name NAME");
  require_given(options.tpu_zone, "the zone of the TPU", "--tpu_zone ZONE");
  check_name(options.tpu_name, "--tpu_name");
  check_name(options.tpu_zone, "--tpu_zone");
  if (options.install_accelerate) check_version(options.accelerate_version);
  const std::vector<std::string> words = gcloud_words(options);
  if (options.debug) {
    std::printf("Running %s\n", joined(words, " ").c_str());
    return 0;
  }
  const int status = status_of_program(words);
  if (status == 0) {
    std::printf("gcloud ended without an error on all machines of %s.\n", options.tpu_name.c_str());
  }
  return status;
}

}  // namespace

Command setup_tpu_config(CLI::App& app) {
  auto options = std::make_shared<TpuConfigOptions>();
  CLI::App* command =
      add_command(app, "tpu-config", "Run commands on all machines of a TPU pod",
                  "accelerate tpu-config (--command COMMAND | --command_file PATH) [flags]");
  command->footer(kTpuConfigFooter);
  command
      ->add_option("--config_file", options->config_file,
                   "The configuration file that names the pod and its commands\n"
                   "[the one that accelerate launch uses]")
      ->type_name("PATH");
  command->add_option("--tpu_name", options->tpu_name, "The TPU [of the configuration file]")
      ->type_name("NAME");
  command->add_option("--tpu_zone", options->tpu_zone, "Its zone [of the configuration file]")
      ->type_name("ZONE");
  command
      ->add_option("--command", options->commands,
                   "A command to run in the pod; may be given several times")
      ->type_name("COMMAND");
  command->add_option("--command_file", options->command_file, "A file with one command a line")
      ->type_name("PATH");
  command->add_flag("--install_accelerate", options->install_accelerate,
                    "First install Python's accelerate there");
  command
      ->add_option("--accelerate_version", options->accelerate_version,
                   "Which one: latest, dev or a version [latest]")
      ->type_name("VERSION");
  command->add_flag("--use_alpha", options->use_alpha, "Use gcloud alpha");
  command->add_flag("--debug", options->debug, "Print what would run, and run nothing");
  return {command, [options] { return run_tpu_config(*options); }};
}

}  // namespace accelerate::cli
