// Tables for people, and what stands in them.
#pragma once

#include <cstdint>
#include <string>

#include "base/text_table.h"

namespace accelerate::cli {

// "0 B", "999 B", "1.2 KiB", "12.3 MiB", "4.0 GiB": binary, as in all commands.
std::string size_text(uint64_t bytes);

// "now", "5 s", "3 min", "2 h", "4 d".
std::string age_text(int64_t seconds);

}  // namespace accelerate::cli
