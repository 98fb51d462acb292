#include "cli/help/launch_arguments.h"

#include "accelerate/errors.h"
#include "base/nearest_name.h"
#include "config/capabilities.h"
#include "config/schema.h"

namespace accelerate::cli {
namespace {

using config::Kind;
using config::Setting;

[[noreturn]] void refuse_launch_flag(const std::string& flag, const LaunchCaller& caller) {
  std::vector<std::string> known = config::long_flags();
  known.insert(known.end(), caller.own_flags.begin(), caller.own_flags.end());
  const std::string nearest = nearest_name(flag, known);
  std::string hint = nearest.empty() ? "accelerate launch --help lists the flags" : nearest + "?";
  const Setting* meant = config::find_flag(nearest);
  if (meant != nullptr && config::missing_for(meant->group) != nullptr) {
    hint += " It is not part of this build";
  }
  if (caller.takes_program) {
    hint += nearest.empty() ? "; those of your program come after it"
                            : " (flags of your program come after it)";
  }
  throw UsageError({.what = caller.name + " has no flag " + flag, .hint = hint});
}

HelpWanted help_of(const std::string& flag) {
  if (flag == "-h" || flag == "--help") return HelpWanted::kShort;
  return flag == "--help_all" || flag == "--help-all" ? HelpWanted::kAll : HelpWanted::kNo;
}

// The value that a switch gets from its flag alone.
std::string switched(const Setting& setting, const std::string& flag) {
  return config::is_negative_flag(setting, flag) ? "false" : "true";
}

// The value that a flag with = gives: --no_tpu_cluster=true means what --tpu_cluster=false does.
std::string given(const Setting& setting, const std::string& flag, const std::string& text) {
  const auto truth = config::truth_of(text);
  if (!truth || !config::is_negative_flag(setting, flag)) return text;
  return *truth ? "false" : "true";
}

}  // namespace

LaunchArguments parse_launch_arguments(const std::vector<std::string>& arguments,
                                       const LaunchCaller& caller) {
  LaunchArguments parsed;
  auto argument = arguments.begin();
  for (; argument != arguments.end(); ++argument) {
    if (!argument->starts_with("-") || *argument == "-") break;
    if (*argument == "--") {
      ++argument;
      break;
    }
    const size_t equals = argument->find('=');
    const bool has_value = equals != std::string::npos;
    const std::string flag = argument->substr(0, equals);
    if (const HelpWanted help = help_of(flag); help != HelpWanted::kNo) {
      parsed.help = help;
      return parsed;
    }
    const Setting* setting = config::find_flag(flag);
    if (setting == nullptr) refuse_launch_flag(flag, caller);

    const bool takes_next = !has_value && setting->kind != Kind::kSwitch &&
                            argument + 1 != arguments.end() && !(argument + 1)->starts_with("--");
    const std::string text = has_value    ? argument->substr(equals + 1)
                             : takes_next ? *(argument + 1)
                                          : "";
    if (const size_t colon = text.find(':');
        setting->name == "num_machines" && colon != std::string::npos) {  // 2:4
      parsed.flags.push_back(
          {config::find_setting("min_machines"), text.substr(0, colon), "--min_machines"});
      parsed.flags.push_back({setting, text.substr(colon + 1), flag});
      if (takes_next) ++argument;
      continue;
    }
    if (has_value) {
      parsed.flags.push_back({setting, given(*setting, flag, argument->substr(equals + 1)), flag});
    } else if (setting->kind == Kind::kSwitch) {
      parsed.flags.push_back({setting, switched(*setting, flag), flag});
    } else if (!setting->alone.empty()) {
      parsed.flags.push_back({setting, std::string(setting->alone), flag});
    } else if (argument + 1 != arguments.end() && !(argument + 1)->starts_with("--")) {
      parsed.flags.push_back({setting, *(argument + 1), flag});
      ++argument;
    } else {
      throw UsageError(
          {.what = flag + " needs a value", .hint = flag + " " + config::placeholder_of(*setting)});
    }
  }
  if (argument != arguments.end()) {
    parsed.program = *argument++;
    parsed.program_arguments.assign(argument, arguments.end());
  }
  return parsed;
}

}  // namespace accelerate::cli
