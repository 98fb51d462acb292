// The way to the kernel of a notebook, for what is not plain text. Standard headers only.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace accelerate {

// Names the pipe; set by the kernel for the session and whatever it starts.
inline constexpr const char* kNotebookChannelVariable = "ACCELERATE_NOTEBOOK_CHANNEL";

bool has_notebook_channel();

// Shows `data`, texts by MIME type, in the place of what was shown under the same `id`; below
// everything if that is empty or new. Waits for room in the pipe, which nobody reads between two
// cells, no longer than `room_within`. Returns false if there is nobody to show it, or no room.
bool show_in_notebook(const std::map<std::string, std::string>& data, const std::string& id,
                      std::chrono::milliseconds room_within = std::chrono::seconds(10));

}  // namespace accelerate
