// Values as text: checked against a setting where they enter, read as what they are where they are
// used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/setting.h"

namespace accelerate::config {

enum class ValueSource { kFlag, kVariable, kFile, kDetected, kPreset };

// Who gave a value. `where` names the flag, the variable or file:line; for what was detected it
// says from what.
struct Source {
  ValueSource kind = ValueSource::kPreset;
  std::string where{};
  std::string older_name{};  // how a file of an older version spells the value: TPU for XLA
};

// As errors name it: "environment variable ACCELERATE_USE_CPU", "--cpu", "c.yaml:7".
std::string place_of(const Source& source);

// The choice of `setting` that `text` names, in any case or by a name of older versions, as the
// schema spells it; nothing for another text. Those of fp8 are passed on to the workers in their
// own case: Python's library wants TE in a file and te as a flag.
std::optional<std::string> canonical_choice(const Setting& setting, std::string_view text);

// Whether this build lacks that choice of distributed_type or of a setting that has a flag:
// mixed_precision fp8, say.
bool is_missing_choice(const Setting& setting, std::string_view choice);

// y, yes, t, true, on, 1 or n, no, f, false, off, 0, in any case; nothing for another word.
std::optional<bool> truth_of(std::string_view text);

// The number that all of `text` is; nothing for another text and for what is too large.
std::optional<int64_t> whole_number(std::string_view text);
std::optional<double> decimal_number(std::string_view text);  // finite

// Whether `text` names GPUs: 0,1 or GPU-5ef..., the way CUDA_VISIBLE_DEVICES does.
bool is_gpu_list(std::string_view text);

// `text` as `setting` writes it: true or false for every word that means it, choices as the schema
// spells them, whole numbers in digits; the folder of the user for the ~ that a path begins with;
// other numbers, names and lists as they were given. Throws ConfigError that names `source`, what
// is allowed and, for a mistyped name, the nearest right one.
std::string checked_value(const Setting& setting, std::string_view text, const Source& source);

// As a variable of a worker holds it. Python's launcher hands on what was typed as it was typed,
// but writes what it read from a file in its own way; some readers may compare.
std::string spelled_value(const Setting& setting, std::string_view value,
                          ValueSource source = ValueSource::kFlag);

// The parts of a comma-separated list, without spaces around them; none of an empty text.
std::vector<std::string> list_parts(std::string_view text);

}  // namespace accelerate::config
