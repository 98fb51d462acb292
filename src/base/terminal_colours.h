// Colours for people, where they look at a terminal. Standard C++ alone: open to every room.
#pragma once

#include <string>
#include <string_view>

namespace accelerate {

// Whether what is written to `fd` may hold colours: it is a terminal that knows them, and NO_COLOR
// is not set.
bool shows_colours(int fd);

// Messages with "error:" in red and what to try in cyan, line by line. `is_on`: see
// shows_colours().
std::string coloured_messages(std::string_view text, bool is_on);

// Output with bold headings ("Usage: ...", "Output:", the head of a table in capitals) and the
// states of checkpoints in green and red.
std::string coloured_output(std::string_view text, bool is_on);

}  // namespace accelerate
