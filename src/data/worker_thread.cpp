#include <csignal>

#include "accelerate/detail/worker_feed.h"
#include "compat/serial_thread.h"

namespace accelerate::detail {

void enter_worker_thread() {
  sigset_t blocked;
  sigfillset(&blocked);
  // Those that a thread brings on itself go to the handlers of the program.
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF}) {
    sigdelset(&blocked, own);
  }
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  compat::make_thread_serial();
}

}  // namespace accelerate::detail
