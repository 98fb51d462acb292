#include "cli/help/launch_help.h"

#include <algorithm>
#include <vector>

#include "base/terminal_width.h"
#include "cli/reports/print_output.h"
#include "cli/reports/setting_text.h"
#include "config/capabilities.h"
#include "config/schema.h"

namespace accelerate::cli {
namespace {

using config::Group;
using config::Setting;

constexpr size_t kHelpColumn = 32;

constexpr const char* kLaunchHelpHead = R"(Start the workers of a training program

Usage: accelerate launch [flags] program [arguments of program]
)";

constexpr const char* kExamples = R"(
Flags of the launcher come before the program; everything after it is passed to the program.
Long flags may be spelled with - or with _. A flag overrides its variable (ACCELERATE_ and its name in capitals, unless the manual says otherwise), and the variable overrides the configuration file.

Examples:
  accelerate launch --num_processes 2 ./train --epochs 3
  accelerate launch --cpu --num_processes 4 --prefix_output train.py --lr 0.1
  accelerate launch --num_processes 2 -m package.train
  accelerate launch --config_file cluster.yaml --explain
)";

std::vector<Group> groups_of_launch() {
  return {Group::kProcesses,   Group::kTraining,      Group::kProgram, Group::kMachines,
          Group::kOutput,      Group::kConfiguration, Group::kFsdp,    Group::kDeepspeed,
          Group::kParallelism, Group::kFp8,           Group::kDynamo,  Group::kMegatron,
          Group::kTpu,         Group::kCloud};
}

bool is_for_native_programs(Group group) { return group < Group::kFsdp; }

// Flags that have a page of their own, and a line in the short help.
bool is_about_sharding(Group group) { return group == Group::kFsdp || group == Group::kDeepspeed; }

std::string flags_column(const Setting& setting) {
  std::string text = "  ";
  if (!setting.short_flag.empty()) text += std::string(setting.short_flag) + ",";
  text += config::flag_of(setting);
  const std::string placeholder = config::placeholder_of(setting);
  if (!setting.alone.empty()) return text + "[=" + placeholder + "]";
  return placeholder.empty() ? text : text + " " + placeholder;
}

// Breaks `text` at blanks and line ends; continuation lines begin at the column.
std::string in_column(const std::string& text, size_t begin, size_t column) {
  const std::string next_line = "\n" + std::string(column, ' ');
  std::string out = begin + 1 > column ? next_line : std::string(column - begin, ' ');
  for (size_t position = 0; position < text.size();) {
    const size_t end = std::min(text.find('\n', position), text.size());
    out += words_in_lines(text.substr(position, end - position), column, kHelpWidth, column);
    if (end < text.size()) out += next_line;
    position = end + 1;
  }
  return out + "\n";
}

std::string explained(Group group) {
  std::string text = "\n" + marked_title(group) + ":\n";
  for (const Setting* setting : config::all_settings()) {
    if (setting->group != group || !setting->has_flag) continue;
    const std::string flags = flags_column(*setting);
    text += flags + in_column(described(*setting), flags.size(), kHelpColumn);
  }
  return text;
}

// What most flags of the group begin with.
std::string_view prefix_of(Group group) {
  switch (group) {
    case Group::kFsdp:
      return "fsdp_";
    case Group::kDeepspeed:
      return "deepspeed_";
    case Group::kParallelism:
      return "parallelism_config_";
    case Group::kFp8:
      return "fp8_";
    case Group::kDynamo:
      return "dynamo_";
    case Group::kMegatron:
      return "megatron_lm_";
    default:
      return "";
  }
}

std::string group_title(Group group) {
  const std::string_view prefix = prefix_of(group);
  std::string flags;
  int alike = 0;
  for (const Setting* setting : config::all_settings()) {
    if (setting->group != group || !setting->has_flag) continue;
    if (!prefix.empty() && setting->name.starts_with(prefix)) {
      ++alike;
    } else {
      flags += config::flag_of(*setting) + " ";
    }
  }
  if (alike > 0) flags += "--" + std::string(prefix) + "* (" + std::to_string(alike) + ")";
  const std::string title = "  " + std::string(config::title_of(group));
  return title + in_column(flags, title.size(), 17);
}

// How a group that is not explained in the short help is dealt with.
enum class Dealing { kUsed, kRefused, kRefusedForNativePrograms, kPassedOn };

Dealing dealing_with(Group group) {
  const config::CapabilityRow* missing = config::missing_for(group);
  if (missing == nullptr) return is_about_sharding(group) ? Dealing::kUsed : Dealing::kPassedOn;
  return missing->is_left_to_python ? Dealing::kRefusedForNativePrograms : Dealing::kRefused;
}

// The groups that are dealt with so, below `heading`; "" if there is none.
std::string groups_text(Dealing dealing, const char* heading) {
  std::string text;
  for (const Group group : groups_of_launch()) {
    if (!is_for_native_programs(group) && dealing_with(group) == dealing)
      text += group_title(group);
  }
  return text.empty() ? "" : heading + text;
}

std::string other_groups() {
  return groups_text(Dealing::kUsed,
                     "\nSharded training (--help_all explains each; docs/deepspeed.md):\n") +
         groups_text(Dealing::kRefusedForNativePrograms,
                     "\nNot part of this build, which refuses to start native programs with "
                     "them.\nFiles, --explain and --dry_run accept them, and Python programs get "
                     "them as\nvariables (--help_all explains each):\n") +
         groups_text(Dealing::kRefused,
                     "\nNot part of this build, which refuses to start any program with "
                     "them.\nFiles, --explain and --dry_run accept them:\n") +
         groups_text(Dealing::kPassedOn,
                     "\nFor Python's library: passed on to the workers as variables, or without "
                     "effect:\n");
}

}  // namespace

std::string launch_help(HelpWanted wanted) {
  std::string text = kLaunchHelpHead;
  for (const Group group : groups_of_launch()) {
    if (is_for_native_programs(group) || wanted == HelpWanted::kAll) text += explained(group);
  }
  if (wanted != HelpWanted::kAll) text += other_groups();
  text +=
      "\nHelp:\n  -h,--help                     Print this help and exit\n"
      "  --help_all                    Print the help of every flag and exit\n";
  return wrapped_lines(text + kExamples, kHelpWidth);
}

}  // namespace accelerate::cli
