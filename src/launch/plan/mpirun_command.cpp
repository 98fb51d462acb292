#include "launch/plan/mpirun_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "accelerate/errors.h"
#include "launch/plan/shell_words.h"

namespace accelerate::launch {
namespace {

// What the command `words` --version says, at most a few lines of it.
std::string version_text(const std::vector<std::string>& words) {
  std::vector<std::string> command = words;
  command.push_back("--version");
  const std::string line = shell_line(command) + " 2>&1 < /dev/null";
  FILE* pipe = popen(line.c_str(), "re");
  if (pipe == nullptr) return "";
  std::string text;
  char buffer[512];
  while (const size_t count = fread(buffer, 1, sizeof buffer, pipe)) {
    if (text.size() < 4096) text.append(buffer, count);
  }
  pclose(pipe);
  return text;
}

// "node1:2,node2:2"
std::string host_list(const std::vector<Host>& hosts, int processes_each) {
  std::string list;
  for (const Host& host : hosts) {
    list += (list.empty() ? "" : ",") + host.name + ":" + std::to_string(processes_each);
  }
  return list;
}

}  // namespace

MpiKind find_mpi_kind(const std::vector<std::string>& words) {
  const std::string text = version_text(words);
  const auto says = [&](const char* name) { return text.find(name) != std::string::npos; };
  if (says("Open MPI") || says("OpenRTE") || says("PRRTE")) return MpiKind::kOpenMpi;
  if (says("HYDRA") || says("Intel(R) MPI") || says("MPICH")) return MpiKind::kHydra;
  throw ConfigError({.what = "'" + shell_line(words) + " --version' does not name a known MPI: " +
                             text.substr(0, text.find('\n')),
                     .where = "--launcher mpirun",
                     .hint = "install Open MPI, MPICH, Intel MPI or MVAPICH, or name its mpirun"});
}

std::vector<std::string> mpirun_command(const LaunchPlan& plan, MpiKind kind,
                                        const std::vector<Host>& hosts,
                                        const std::vector<std::string>& words,
                                        const std::vector<std::string>& variables) {
  std::vector<std::string> command = words;
  const auto add = [&](std::initializer_list<std::string> more) {
    command.insert(command.end(), more);
  };
  const bool open_mpi = kind == MpiKind::kOpenMpi;
  add({"-n", std::to_string(plan.num_processes)});
  if (!hosts.empty()) {
    add({open_mpi ? "--host" : "-hosts", host_list(hosts, plan.processes_per_machine())});
    add({open_mpi ? "--npernode" : "-ppn", std::to_string(plan.processes_per_machine())});
  }
  if (open_mpi) {
    if (hosts.empty()) add({"--oversubscribe"});
    // Who asks for more workers than cores gets them.
    add({"--bind-to", "socket:overload-allowed"});
    if (geteuid() == 0) add({"--allow-run-as-root"});
    if (plan.prefix_output) add({"--tag-output"});
    for (const std::string& name : variables) add({"-x", name});
  } else {
    if (plan.prefix_output) add({"-prepend-rank"});
    add({"-genvall"});
  }
  command.insert(command.end(), plan.command.begin(), plan.command.end());
  return command;
}

}  // namespace accelerate::launch
