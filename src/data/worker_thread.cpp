#include <csignal>
#include <string>

#include "accelerate/detail/worker_feed.h"
#include "accelerate/errors.h"
#include "tensor/serial_thread.h"

namespace accelerate::detail {

void throw_too_many_workers(int workers, const char* why) {
  throw UsageError({.what = "cannot start " + std::to_string(workers) + " workers: " + why,
                    .where = "num_workers",
                    .hint = "ask for fewer; more than the machine has cores rarely helps"});
}

void enter_worker_thread() {
  sigset_t blocked;
  sigfillset(&blocked);
  // Those that a thread brings on itself go to the handlers of the program.
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF}) {
    sigdelset(&blocked, own);
  }
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  make_thread_serial();
}

}  // namespace accelerate::detail
