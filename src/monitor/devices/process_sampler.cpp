#include "monitor/devices/process_sampler.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace accelerate::monitor {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The number behind `key` in lines such as "MemTotal:  16 kB", in bytes.
uint64_t kibibytes_of(const std::string& text, const std::string& key) {
  const size_t found = text.find("\n" + key + ":");
  if (found == std::string::npos) return 0;
  std::istringstream rest(text.substr(found + key.size() + 2));
  uint64_t number = 0;
  rest >> number;
  return number << 10;
}

struct ProcessStat {
  uint64_t ticks = 0;
  uint64_t resident_pages = 0;
};

// The name of a process may hold anything, blanks and parentheses too: numbers begin behind it.
std::optional<ProcessStat> stat_of(const fs::path& folder) {
  const std::string text = text_of(folder / "stat");
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end + 1));
  std::string word;
  for (int field = 3; field < 14; ++field) fields >> word;
  ProcessStat stat;
  uint64_t user = 0;
  uint64_t system = 0;
  fields >> user >> system;
  for (int field = 16; field < 24; ++field) fields >> word;
  fields >> stat.resident_pages;
  if (!fields) return std::nullopt;
  stat.ticks = user + system;
  return stat;
}

std::vector<pid_t> children_of(const fs::path& proc, pid_t pid) {
  const std::string name = std::to_string(pid);
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& task : fs::directory_iterator(proc / name / "task", error)) {
    std::istringstream list(text_of(task.path() / "children"));
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

}  // namespace

std::optional<Usage> ProcessSampler::machine() {
  std::istringstream line(text_of(proc_ / "stat"));
  std::string cpu;
  line >> cpu;
  // user, nice, system, idle, iowait, irq, softirq, steal
  Times now;
  double ticks = 0;
  for (int field = 0; field < 8 && line >> ticks; ++field) {
    now.all += ticks;
    if (field != 3 && field != 4) now.busy += ticks;
  }
  const Times before = machine_before_;
  machine_before_ = now;
  const std::string memory = "\n" + text_of(proc_ / "meminfo");
  if (before.all == 0 || now.all <= before.all) return std::nullopt;
  return Usage{
      .busy = (now.busy - before.busy) / (now.all - before.all),
      .memory_bytes = kibibytes_of(memory, "MemTotal") - kibibytes_of(memory, "MemAvailable")};
}

std::optional<Usage> ProcessSampler::process(pid_t pid) {
  constexpr size_t kMostProcesses = 256;  // below one worker
  std::vector<pid_t> family{pid};
  Usage usage;
  uint64_t ticks = 0;
  for (size_t i = 0; i < family.size() && i < kMostProcesses; ++i) {
    const auto stat = stat_of(proc_ / std::to_string(family[i]));
    if (!stat && i == 0) {
      before_.erase(pid);
      return std::nullopt;
    }
    if (!stat) continue;
    ticks += stat->ticks;
    usage.memory_bytes += stat->resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    for (const pid_t child : children_of(proc_, family[i])) family.push_back(child);
  }
  const Ticks now{ticks, std::chrono::steady_clock::now()};
  const auto before = before_.find(pid);
  if (before != before_.end() && ticks >= before->second.used) {
    const std::chrono::duration<double> passed = now.at - before->second.at;
    const double seconds = static_cast<double>(ticks - before->second.used) /
                           static_cast<double>(sysconf(_SC_CLK_TCK));
    if (passed.count() > 0) usage.busy = seconds / passed.count();
  }
  before_[pid] = now;
  return usage;
}

uint64_t ProcessSampler::machine_memory_bytes() const {
  return kibibytes_of("\n" + text_of(proc_ / "meminfo"), "MemTotal");
}

int ProcessSampler::processors() const { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

}  // namespace accelerate::monitor
