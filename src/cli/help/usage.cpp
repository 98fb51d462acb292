#include "cli/help/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "accelerate/errors.h"
#include "base/nearest_name.h"
#include "base/word_list.h"

namespace accelerate::cli {
namespace {

struct Reached {
  const CLI::App* app = nullptr;
  std::string words{};  // "accelerate config default"
};

// The command that the words of the user led to.
Reached reached_command(const CLI::App& app, const std::string& before = "") {
  const std::string words = before + app.get_name();
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->parsed()) return reached_command(*command, words + " ");
  }
  return {&app, words};
}

std::vector<std::string> flags_of_app(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

void refuse_unknown_flag(const Reached& reached, const std::string& word) {
  const std::string flag = word.substr(0, word.find('='));
  const std::string nearest = nearest_name(flag, flags_of_app(*reached.app));
  throw UsageError({.what = reached.words + " has no flag " + flag,
                    .hint = nearest.empty() ? reached.words + " --help" : nearest + "?"});
}

void refuse_word(const Reached& reached, const std::string& word) {
  const std::vector<std::string> commands = commands_of(*reached.app);
  const std::string nearest = nearest_name(word, commands);
  const std::string what = commands.empty()
                               ? reached.words + " does not know what to do with '" + word + "'"
                               : reached.words + " has no command " + word;
  throw UsageError(
      {.what = what,
       .hint = nearest.empty() ? reached.words + " --help" : reached.words + " " + nearest});
}

void refuse_missing_command(const Reached& reached, const CLI::Error& error) {
  const std::vector<std::string> commands = commands_of(*reached.app);
  const bool is_missing = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError);
  if (!is_missing || commands.empty()) return;
  throw UsageError({.what = reached.words + " needs a command: " + listed(commands, "or"),
                    .hint = reached.words + " --help"});
}

// A flag that is the last word.
void refuse_missing_value(const CLI::App& app, const CLI::Error& error) {
  const std::string text = error.what();  // "--folder: 1 required PATH missing"
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (!name.starts_with("-") || !text.starts_with(name + ":")) continue;
    if (!text.ends_with(" missing")) continue;
    throw UsageError(
        {.what = name + " needs a value", .hint = name + " " + option->get_type_name()});
  }
}

}  // namespace

void refuse_command_line(const CLI::App& program, const CLI::Error& error) {
  const Reached reached = reached_command(program);
  const std::vector<std::string> unknown = reached.app->remaining();
  const auto flag = std::find_if(unknown.begin(), unknown.end(), [](const std::string& word) {
    return word.size() > 1 && word.starts_with("-");
  });
  if (flag != unknown.end()) refuse_unknown_flag(reached, *flag);
  if (!unknown.empty()) refuse_word(reached, unknown.front());
  refuse_missing_command(reached, error);
  refuse_missing_value(*reached.app, error);
  throw UsageError({.what = error.what(), .hint = reached.words + " --help"});
}

CLI::Validator one_of(std::string option, std::vector<std::string> choices,
                      std::map<std::string, std::string> hints) {
  const auto check = [option = std::move(option), choices = std::move(choices),
                      hints = std::move(hints)](const std::string& word) -> std::string {
    if (std::find(choices.begin(), choices.end(), word) != choices.end()) return "";
    const std::string nearest = nearest_name(word, choices);
    const auto known = hints.find(word);
    throw UsageError(
        {.what = option + " cannot be '" + word + "': it must be " + listed(choices, "or"),
         .hint = known != hints.end() ? known->second
                 : nearest.empty()    ? ""
                                      : nearest + "?"});
  };
  return CLI::Validator(check, "");
}

void require_something_at(const std::filesystem::path& path, const std::string& hint) {
  std::error_code unknown;
  if (std::filesystem::status(path, unknown).type() != std::filesystem::file_type::not_found)
    return;
  throw UsageError({.what = "there is nothing at " + path.string(), .hint = hint});
}

}  // namespace accelerate::cli
