#include "base/slurm_names.h"

#include <algorithm>
#include <charconv>

namespace accelerate {

std::optional<int> slurm_tasks_on_node(const std::string& text, int node) {
  size_t at = 0;
  int first = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    const size_t times = item.find("(x");
    int tasks = 0;
    int nodes = 1;
    const char* begin = item.data();
    const char* tasks_end = begin + std::min(times, item.size());
    if (std::from_chars(begin, tasks_end, tasks).ptr != tasks_end) return std::nullopt;
    if (times != std::string::npos) {
      std::from_chars(begin + times + 2, begin + item.size(), nodes);
    }
    if (node < first + nodes) return tasks;
    first += nodes;
    at = end + 1;
  }
  return std::nullopt;
}

std::string slurm_first_host(const std::string& list) {
  std::string host;
  size_t at = 0;
  while (at < list.size() && list[at] != ',') {
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    const size_t end = std::min(list.find_first_of("-,]", at), list.size());
    host += list.substr(at + 1, end - at - 1);
    at = std::min(list.find(']', end), list.size() - 1) + 1;
  }
  return host;
}

}  // namespace accelerate
