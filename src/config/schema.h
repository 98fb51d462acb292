// All settings, in the order in which help shows them. Tables of constants: nothing here throws or
// costs more than a walk over two hundred rows.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/setting.h"

namespace accelerate::config {

const std::vector<const Setting*>& all_settings();

// The position of `setting`, one of all_settings(), among them.
size_t index_of(const Setting& setting);

// By name; nullptr if there is none.
const Setting* find_setting(std::string_view name);

// By flag: "-m", "--module"; in long flags - and _ are the same. nullptr if there is none.
const Setting* find_flag(std::string_view flag);

// Whether `flag` is the one that switches `setting` off.
bool is_negative_flag(const Setting& setting, std::string_view flag);

// Every long flag, spelled with _.
std::vector<std::string> long_flags();

// By the key of a configuration file inside `map` ("" at the top). Inside a map the prefix that all
// its keys share may be left out. nullptr if there is none.
const Setting* find_file_key(std::string_view map, std::string_view key, bool sagemaker);

// The keys that find_file_key() knows inside `map`; at the top the names of the maps too.
std::vector<std::string> file_keys(std::string_view map, bool sagemaker);

// Whether the key holds a map of its own.
bool is_map_key(std::string_view key, bool sagemaker);

// "Processes"
std::string_view title_of(Group group);

}  // namespace accelerate::config
