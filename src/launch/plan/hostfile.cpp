#include "launch/plan/hostfile.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <sstream>

#include "accelerate/errors.h"

namespace accelerate::launch {
namespace {

constexpr int kMaxSlots = 4096;

[[noreturn]] void refuse(const std::filesystem::path& path, int line, const std::string& what) {
  throw ConfigError({.what = what,
                     .where = path.string() + ":" + std::to_string(line),
                     .hint = "each line names a machine and its workers: node1 slots=2"});
}

int slots_in(const std::string& text, const std::filesystem::path& path, int line) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size() || slots < 1 || slots > kMaxSlots) {
    refuse(path, line, "'" + text + "' is not a number of workers");
  }
  return slots;
}

// What ssh and mpirun could take for a flag or a shell word is not a name.
bool is_name(const std::string& text) {
  return !text.empty() && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == '@' ||
                  c == ':' || c == '[' || c == ']' || c == '%';
         });
}

}  // namespace

std::vector<Host> read_hostfile(const std::filesystem::path& path) {
  std::ifstream stream(path);
  if (!stream) {
    throw ConfigError({.what = "cannot read the host file",
                       .where = path.string(),
                       .hint = "name a file with one machine per line, such as: node1 slots=2"});
  }
  std::vector<Host> hosts;
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    Host host;
    if (!(words >> host.name)) continue;
    // "node1:4", but not the colons of an IPv6 address.
    const size_t colon = host.name.rfind(':');
    if (colon != std::string::npos && host.name.find(':') == colon) {
      host.slots = slots_in(host.name.substr(colon + 1), path, number);
      host.name.resize(colon);
    }
    if (!is_name(host.name))
      refuse(path, number, "'" + host.name + "' is not the name of a machine");
    for (std::string word; words >> word;) {
      if (word.starts_with("slots=")) {
        host.slots = slots_in(word.substr(6), path, number);
      } else if (!word.starts_with("max_slots=") && !word.starts_with("max-slots=")) {
        refuse(path, number, "'" + word + "' is not known");
      }
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) {
    throw ConfigError({.what = "the host file names no machine",
                       .where = path.string(),
                       .hint = "one machine per line, such as: node1 slots=2"});
  }
  return hosts;
}

std::string address_of(const Host& host) {
  const size_t at = host.name.rfind('@');
  return at == std::string::npos ? host.name : host.name.substr(at + 1);
}

}  // namespace accelerate::launch
