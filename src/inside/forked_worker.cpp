#include "inside/forked_worker.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <thread>

#include "accelerate/errors.h"
#include "inside/worker_variables.h"

namespace accelerate::inside {
namespace {

constexpr int kReported = 0;
constexpr int kNotReported = 1;

void flush_output() {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

// Signals end a worker, whatever the program or notebook does with them, and none is held back.
void forget_signal_handlers() {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

// What is typed, or a script that an interpreter reads, belongs to the caller.
void empty_standard_input() {
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing < 0) return;
  dup2(nothing, STDIN_FILENO);
  if (nothing != STDIN_FILENO) close(nothing);
}

WorkerReport run(const detail::WorkerBody& body, int threads) {
  try {
    at::set_num_threads(threads);
    return WorkerReport::of_result(body());
  } catch (...) {
    return WorkerReport::of_exception(std::current_exception());
  }
}

[[noreturn]] void throw_cannot_start(const char* hint) {
  throw CommError(
      {.what = "cannot start a worker: " + std::string(std::strerror(errno)), .hint = hint});
}

}  // namespace

ForkedWorker::ForkedWorker(const Start& start) : rank_(start.rank) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_cannot_start("raise the limit on open files (ulimit -n)");
  life_ = launch::UniqueFd(ends[0]);
  const launch::UniqueFd workers_end(ends[1]);

  std::vector<char*> variables;
  variables.reserve(start.environment.size() + 1);
  for (const std::string& variable : start.environment) {
    variables.push_back(const_cast<char*>(variable.c_str()));
  }
  variables.push_back(nullptr);

  flush_output();  // else the worker would print again what is still in buffers
  const pid_t caller = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    end_ = WorkerEnd{};  // nothing to kill
    throw_cannot_start("start fewer workers, or raise the limit on processes (ulimit -u)");
  }
  if (pid_ == 0) be_worker(start, variables, caller);
  // Also from this side, so that a signal to the group reaches it whoever runs first.
  setpgid(pid_, pid_);
}

void ForkedWorker::be_worker(const Start& start, const std::vector<char*>& variables,
                             pid_t caller) const {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != caller) _exit(128 + SIGKILL);  // it died before the line above
  forget_signal_handlers();
  empty_standard_input();
  // Not by setenv(): its lock may be held by a thread that does not exist here.
  environ = const_cast<char**>(variables.data());

  // In a thread of its own: OpenMP keeps its pool with the thread that opened a parallel region,
  // and that of the caller's thread waits for members that fork() has not copied.
  bool reported = false;
  std::thread([&] {
    reported = report_.write(run(start.body, threads_of(start.environment)));
  }).join();
  flush_output();
  _exit(reported ? kReported : kNotReported);  // static objects are the caller's business
}

ForkedWorker::~ForkedWorker() {
  if (end_) return;
  stop(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ForkedWorker::stop(int signal) {
  if (end_) return;
  stopped_ = true;
  kill(-pid_, signal);
}

void ForkedWorker::collect() {
  // While it is a zombie the number of its group cannot belong to someone else.
  kill(-pid_, SIGKILL);
  int status = 0;
  pid_t reaped;
  do {
    reaped = waitpid(pid_, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  end_ = WorkerEnd{.rank = rank_, .report = report_.read(), .stopped = stopped_};
  if (reaped == pid_) end_->wait_status = status;
}

}  // namespace accelerate::inside
