// The frame of the .wandb file of an offline run: seven bytes that say what it is, then records in
// the log format of LevelDB, with checksums of zlib.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::tracking {

// What a file begins with.
std::string_view wandb_file_begin();

// Appends one record; `offset` is where in the file `bytes` will be added.
void append_wandb_record(std::string& bytes, size_t offset, std::string_view record);

// The records of a file, up to one that is cut off or damaged.
std::vector<std::string> parse_wandb_records(std::string_view file);

}  // namespace accelerate::tracking
