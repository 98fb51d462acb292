#include "base/notebook_channel.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/environment.h"
#include "base/json_quote.h"
#include "base/unique_fd.h"

namespace accelerate {
namespace {

namespace fs = std::filesystem;

std::string message_text_of(const std::map<std::string, std::string>& data, const std::string& id) {
  std::string json = R"({"id":)";
  append_json_text(json, id);
  json += R"(,"data":{)";
  const char* separator = "";
  for (const auto& [type, text] : data) {
    json += separator;
    append_json_text(json, type);
    json += ':';
    append_json_text(json, text);
    separator = ",";
  }
  return json + "}}\n";
}

// What is too large for one write to the pipe, whole among those of others, goes through a file.
std::string message_of_file(const fs::path& folder, const std::string& json) {
  static std::atomic<int> count = 0;
  const fs::path file = folder / ("display_" + std::to_string(getpid()) + "_" +
                                  std::to_string(count.fetch_add(1)) + ".json");
  std::ofstream out(file, std::ios::binary);
  out << json;
  out.close();
  if (!out) return {};
  std::string message = R"({"file":)";
  append_json_text(message, file.string());
  return message + "}\n";
}

}  // namespace

bool has_notebook_channel() {
  return !environment_variable(kNotebookChannelVariable).value_or("").empty();
}

bool show_in_notebook(const std::map<std::string, std::string>& data, const std::string& id) {
  const std::string path = environment_variable(kNotebookChannelVariable).value_or("");
  if (path.empty()) return false;
  // Does not wait for a reader: where there is none, the kernel has ended.
  const UniqueFd channel(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (channel.get() < 0) return false;
  fcntl(channel.get(), F_SETFL, 0);  // but for room in the pipe
  std::string message = message_text_of(data, id);
  if (message.size() > PIPE_BUF) message = message_of_file(fs::path(path).parent_path(), message);
  if (message.empty()) return false;
  // What the cell has printed so far stands above.
  std::fflush(stdout);
  ssize_t written = 0;
  do {
    written = write(channel.get(), message.data(), message.size());
  } while (written < 0 && errno == EINTR);
  return written == static_cast<ssize_t>(message.size());
}

}  // namespace accelerate
