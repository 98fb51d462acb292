// Asking another program a short question.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace accelerate::cli {

// What `command` (the first: a path) writes to its output, without the line end, if it exits with
// status 0 within `deadline`; it is killed otherwise. Its errors and its input are /dev/null.
std::optional<std::string> captured_command(const std::vector<std::string>& command,
                                            std::chrono::milliseconds deadline);

}  // namespace accelerate::cli
