// Reads a trace in the format of Chrome, event by event.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace accelerate::trace {

struct TraceVisitor {
  std::function<void(nlohmann::json& event)> event{};  // each of "traceEvents"
  // Whatever else stands beside them, such as "distributedInfo".
  std::function<void(const std::string& key, nlohmann::json value)> value{};
};

// Holds one event at a time in memory; the file is mapped. Throws ProfileError, which names the
// file, for what is not a trace; events may have been visited by then.
void read_trace(const std::filesystem::path& path, const TraceVisitor& visitor);

}  // namespace accelerate::trace
