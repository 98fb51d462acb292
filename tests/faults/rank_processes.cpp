#include "rank_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <thread>

#include "support/reserved_port.h"

namespace faults {
namespace {

using std::chrono::steady_clock;

void set_number(const char* name, int value) { setenv(name, std::to_string(value).c_str(), 1); }

void become_rank(int rank, int world_size, Nodes nodes, int port) {
  const bool alone = nodes == Nodes::kOneEach;
  set_number("RANK", rank);
  set_number("WORLD_SIZE", world_size);
  set_number("LOCAL_RANK", alone ? 0 : rank);
  set_number("LOCAL_WORLD_SIZE", alone ? 1 : world_size);
  set_number("GROUP_RANK", alone ? rank : 0);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  set_number("MASTER_PORT", port);
}

void redirect_output(const std::string& file) {
  const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  dup2(opened, STDOUT_FILENO);
  dup2(opened, STDERR_FILENO);
  close(opened);
}

std::string output_file(const std::filesystem::path& output, int rank) {
  return output.string() + "." + std::to_string(rank);
}

}  // namespace

bool RankEnd::was_killed() const { return !hung && WIFSIGNALED(status); }

int RankEnd::exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }

int fork_process(const std::function<int()>& body) {
  const int parent = getpid();
  const int process = fork();
  if (process != 0) return process;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  int code = 1;
  try {
    code = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::fflush(nullptr);
  _exit(code);
}

std::vector<RankEnd> run_ranks(int world_size, Nodes nodes, const std::filesystem::path& output,
                               std::chrono::seconds deadline,
                               const std::function<int(int rank)>& body) {
  const accelerate::test::ReservedPort port;
  std::vector<int> processes;
  for (int rank = 0; rank < world_size; ++rank) {
    processes.push_back(fork_process([&] {
      redirect_output(output_file(output, rank));
      become_rank(rank, world_size, nodes, port.number());
      return body(rank);
    }));
  }
  std::vector<RankEnd> ends(processes.size());
  const auto end = steady_clock::now() + deadline;
  for (size_t left = processes.size(); left > 0;) {
    const bool late = steady_clock::now() > end;
    for (size_t rank = 0; rank < processes.size(); ++rank) {
      if (processes[rank] < 0) continue;
      if (late && !ends[rank].hung) {
        ends[rank].hung = true;
        kill(processes[rank], SIGKILL);
      }
      if (waitpid(processes[rank], &ends[rank].status, WNOHANG) == 0) continue;
      processes[rank] = -1;
      --left;
    }
    if (left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int rank = 0; rank < world_size; ++rank) {
    ends[static_cast<size_t>(rank)].output = contents_of(output_file(output, rank));
  }
  return ends;
}

std::string contents_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace faults
