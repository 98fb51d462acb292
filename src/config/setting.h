// What is known about one setting: the only place that says it. Flags, keys of configuration files,
// variables, help, completion, the manual and the settings page are all made from it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace accelerate::config {

enum class Group {
  kProgram,
  kProcesses,
  kTraining,
  kMachines,
  kOutput,
  kConfiguration,
  kFsdp,
  kDeepspeed,
  kParallelism,
  kFp8,
  kDynamo,
  kMegatron,
  kTpu,
  kCloud,
  kFileOnly,
};

enum class Kind {
  kSwitch,  // yes or no; its flag takes no value
  kBool,    // yes or no; its flag takes a value
  kInt,
  kFloat,
  kText,
  kChoice,  // one of `choices`, in any case
  kPath,
  kList,  // comma-separated
};

// What becomes of a setting.
enum class Effect {
  kUsed,       // by the launcher, the program or the library
  kForwarded,  // workers see its variable; native programs do not use it, Python's library does
  kNone,       // accepted, and named as without effect
};

// In which workers the variable of a setting is set.
enum class Passed {
  kNever,
  kAlways,
  kIfGiven,          // where somebody gave a value
  kIfTrue,           // where it is switched on
  kCpu,              // "False" too, but only where nothing is distributed over devices
  kExceptDeepspeed,  // in all but DeepSpeed jobs
  kFsdp,
  kDeepspeed,
  kMegatron,
  kFp8,
  kParallelism,
  kContextParallel,
  kSequenceParallel,
};

// How a value is written into a variable.
enum class Spelling {
  kAsIs,
  kLower,       // true, full_shard
  kPython,      // True
  kDigit,       // 1
  kUpper,       // INDUCTOR
  kTyped,       // true; True where a file says it
  kTypedDigit,  // 1; True where a file says it
};

// What a number counts.
enum class Unit { kNone, kSeconds };

// Which kind of configuration file knows a key.
enum class FileKind { kCluster, kSagemaker, kBoth, kRetired };

inline constexpr std::string_view kNoVariable = "-";

struct Setting {
  std::string_view name{};  // also the long flag, --name
  Group group = Group::kProgram;
  Kind kind = Kind::kText;
  std::string_view help{};
  // The value where nobody gives one.
  std::optional<std::string_view> preset{};
  // The value that counts where nobody gives one although `preset` is unset: the launcher and the
  // workers tell a value that somebody gave from this one.
  std::optional<std::string_view> fallback{};
  // Where the value is decided at the start: how, in words.
  std::string_view decided{};
  std::span<const std::string_view> choices{};
  std::span<const std::string_view> words{};  // taken beside numbers, e.g. auto
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  Unit unit = Unit::kNone;

  bool has_flag = true;
  std::string_view short_flag{};     // "-m"
  std::string_view negative_flag{};  // the long flag that switches it off
  // The value that its flag gives without one; a value then stands behind a =: --monitor=8642. "":
  // the flag takes the next word.
  std::string_view alone{};
  std::string_view placeholder{};  // of its value in help; "": from `unit` and `kind`
  bool is_secret = false;          // never printed

  // The key in a configuration file: "num_processes", or "fsdp_config.fsdp_version" inside a map.
  std::string_view file_key{};
  std::string_view file_alias{};  // another name of the last part, which old files have
  std::optional<std::string_view> file_preset{};  // what a file without the key means
  FileKind file_kind = FileKind::kCluster;

  // The variable that gives a value: "" is ACCELERATE_ and the name, kNoVariable none.
  std::string_view variable{};
  Passed passed = Passed::kNever;
  Spelling spelling = Spelling::kAsIs;
  Effect effect = Effect::kUsed;
};

// The variable that gives `setting` a value, and by which workers are told; "" if it has none.
std::string variable_of(const Setting& setting);

// "--num_processes"
std::string flag_of(const Setting& setting);

// What counts where nobody gives a value: the preset or the fallback, else how it is decided, in
// words; "" where that is nothing.
std::string default_of(const Setting& setting);

// "N", "PATH", "NAME": what stands for the value in help; "" where the flag takes none.
std::string placeholder_of(const Setting& setting);

}  // namespace accelerate::config
