#include "notebook/forked_worker.h"

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
#include "notebook/worker_variables.h"

namespace accelerate::notebook {
namespace {

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
    // Others may fail because of this one before its report is written; it ends by itself now.
    ::signal(SIGTERM, SIG_IGN);
    return WorkerReport::of_exception(std::current_exception());
  }
}

// In a thread of its own: OpenMP keeps its pool with the thread that opened a parallel region, and
// that of the caller's thread waits for members that fork() has not copied.
WorkerReport run_in_fresh_thread(const ForkedStart& start) {
  try {
    WorkerReport report;
    std::thread([&] { report = run(start.body, threads_of(start.environment)); }).join();
    return report;
  } catch (...) {  // there is no room for a thread
    return WorkerReport::of_exception(std::current_exception());
  }
}

}  // namespace

void flush_output() {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

ForkedWorker::ForkedWorker(const ForkedStart& start) : report_(start.report) {
  std::vector<char*> variables;
  variables.reserve(start.environment.size() + 1);
  for (const std::string& variable : start.environment) {
    variables.push_back(const_cast<char*>(variable.c_str()));
  }
  variables.push_back(nullptr);

  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    throw CommError({.what = "cannot start a worker: " + std::string(std::strerror(errno)),
                     .hint = "start fewer workers, or raise the limit on processes (ulimit -u)"});
  }
  if (pid_ == 0) be_worker(start, variables, parent);
  // Also from this side, so that a signal to the group reaches it whoever runs first.
  setpgid(pid_, pid_);
}

// An exception must not leave it: it would go on as a second copy of the program.
void ForkedWorker::be_worker(const ForkedStart& start, const std::vector<char*>& variables,
                             pid_t parent) noexcept {
  try {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(128 + SIGKILL);  // it died before the line above
    forget_signal_handlers();
    empty_standard_input();
    // Not by setenv(): its lock may be held by a thread that does not exist here.
    environ = const_cast<char**>(variables.data());
    const bool is_written = start.report.write(run_in_fresh_thread(start));
    flush_output();
    _exit(is_written ? 0 : kReportIsLost);  // static objects are the caller's business
  } catch (...) {
    _exit(kReportIsLost);
  }
}

bool ForkedWorker::only_lost_a_peer() const {
  const auto report = report_.read();
  return report && report->kind == WorkerReport::Kind::kException && report->lost_peer;
}

ForkedWorker::~ForkedWorker() {
  if (has_ended()) return;
  stop(SIGKILL);
  collect();
}

void ForkedWorker::stop(int signal) {
  if (has_ended()) return;
  stopped_ = true;
  kill(-pid_, signal);
}

void ForkedWorker::collect() {
  // While it is a zombie the number of its group cannot belong to someone else.
  kill(-pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  wait_status_ = status;
}

}  // namespace accelerate::notebook
