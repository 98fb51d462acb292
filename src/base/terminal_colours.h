// Messages for people who look at a terminal: colours, and lines that end between words. Standard
// C++ alone: open to every room.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace accelerate {

// Whether what is written to `fd` may hold colours: it is a terminal that knows them, and NO_COLOR
// is not set.
bool shows_colours(int fd);

// Messages with lines of at most `columns` characters: longer ones are broken between words and go
// on under the first word of what they say, after "error: ", "  at   " or "  try  ". A word that is
// longer stays whole, and so do lines that quote a worker ("    | ...").
std::string wrapped_messages(std::string_view text, size_t columns);

// The same at the width of the terminal that `fd` is; as it is where it is none.
std::string fitted_messages(std::string_view text, int fd);

// Messages with "error:" in red and what to try in cyan, line by line. `is_on`: see
// shows_colours().
std::string coloured_messages(std::string_view text, bool is_on);

// Output with bold headings ("Usage: ...", "Output:", the head of a table in capitals) and the
// states of checkpoints in green and red.
std::string coloured_output(std::string_view text, bool is_on);

}  // namespace accelerate
