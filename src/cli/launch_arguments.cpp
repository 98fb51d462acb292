#include "cli/launch_arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "accelerate/errors.h"
#include "cli/nearest_name.h"

namespace accelerate::cli {
namespace {

std::vector<std::string> long_flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

[[noreturn]] void refuse_flag(const CLI::App& app, const std::string& flag) {
  const std::string nearest = nearest_name(flag, long_flags(app));
  throw UsageError({.what = "accelerate launch has no flag " + flag,
                    .hint = nearest.empty()
                                ? std::string("accelerate launch --help lists the flags; those of "
                                              "your program come after it")
                                : nearest + "? (flags of your program come after it)"});
}

}  // namespace

LaunchArguments split_launch_arguments(const CLI::App& launch,
                                       const std::vector<std::string>& arguments) {
  LaunchArguments split;
  auto argument = arguments.begin();
  for (; argument != arguments.end(); ++argument) {
    if (!argument->starts_with("-") || *argument == "-") break;
    if (*argument == "--") {
      ++argument;
      break;
    }
    const size_t equals = argument->find('=');
    std::string flag = argument->substr(0, equals);
    if (flag.starts_with("--")) std::replace(flag.begin() + 2, flag.end(), '-', '_');
    const CLI::Option* option = launch.get_option_no_throw(flag);
    if (option == nullptr) refuse_flag(launch, flag);

    const bool has_value = equals != std::string::npos;
    split.flags.push_back(has_value ? flag + argument->substr(equals) : flag);
    const bool needs_value = option->get_items_expected_max() > 0;
    if (needs_value && !has_value && argument + 1 != arguments.end()) {
      split.flags.push_back(*++argument);
    }
  }
  if (argument != arguments.end()) {
    split.program = *argument++;
    split.program_arguments.assign(argument, arguments.end());
  }
  return split;
}

}  // namespace accelerate::cli
