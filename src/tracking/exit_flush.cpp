#include "tracking/exit_flush.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>

#include "tracking/tracker_writer.h"

namespace accelerate::tracking {
namespace {

using namespace std::chrono_literals;

constexpr auto kHandlerPatience = 3000ms;

// Signals that end a process, and those of a crash.
constexpr std::array kEndingSignals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU,
                                       SIGSEGV, SIGBUS, SIGFPE, SIGILL,  SIGABRT};

// A signal handler has nothing but what is static.
struct ExitState {
  std::array<std::atomic<TrackerWriter*>, 16> writers{};
  std::atomic<int> in_handler{0};
  std::array<struct sigaction, kEndingSignals.size()> before{};
  std::array<bool, kEndingSignals.size()> is_handled{};
  std::mutex mutex;  // of what stands below, and of installing handlers
  int users = 0;
  bool at_exit_is_set = false;
};

// Never destroyed: a signal may come during static destruction.
ExitState& exit_state() {
  static ExitState& state = *new ExitState;
  return state;
}

void flush_all_writers() {
  ExitState& state = exit_state();
  state.in_handler.fetch_add(1);
  for (auto& slot : state.writers) {
    if (TrackerWriter* writer = slot.load()) writer->flush_in_handler(kHandlerPatience);
  }
  state.in_handler.fetch_sub(1);
}

extern "C" void flush_before_end(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  ExitState& state = exit_state();
  size_t index = 0;
  while (kEndingSignals[index] != signal) ++index;
  const struct sigaction& before = state.before[index];
  flush_all_writers();
  struct sigaction current {};
  sigaction(signal, nullptr, &current);
  const bool is_on_top =
      (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == flush_before_end;
  const bool has_handler = (before.sa_flags & SA_SIGINFO) != 0
                               ? before.sa_sigaction != nullptr
                               : before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN;
  if (has_handler) {
    if ((before.sa_flags & SA_SIGINFO) != 0) {
      before.sa_sigaction(signal, info, context);
    } else {
      before.sa_handler(signal);
    }
  } else if (is_on_top && before.sa_handler == SIG_DFL) {
    // As if this had not been there. A fault comes again when its instruction is repeated; what
    // somebody sent must be sent again, and arrives when the handler returns.
    sigaction(signal, &before, nullptr);
    if (info->si_code <= 0 || signal == SIGABRT) ::raise(signal);
  }
  errno = error;
}

void install_handlers(ExitState& state) {
  for (size_t i = 0; i < kEndingSignals.size(); ++i) {
    if (state.is_handled[i]) continue;  // under a handler that somebody has put above it
    sigaction(kEndingSignals[i], nullptr, &state.before[i]);
    const bool is_ignored =
        (state.before[i].sa_flags & SA_SIGINFO) == 0 && state.before[i].sa_handler == SIG_IGN;
    if (is_ignored) continue;
    struct sigaction action {};
    action.sa_sigaction = flush_before_end;
    action.sa_flags = SA_SIGINFO | SA_RESTART | (state.before[i].sa_flags & SA_ONSTACK);
    sigemptyset(&action.sa_mask);
    state.is_handled[i] = sigaction(kEndingSignals[i], &action, nullptr) == 0;
  }
}

// A handler that was put above this one stays.
void remove_handlers(ExitState& state) {
  for (size_t i = 0; i < kEndingSignals.size(); ++i) {
    if (!state.is_handled[i]) continue;
    struct sigaction current {};
    sigaction(kEndingSignals[i], nullptr, &current);
    if ((current.sa_flags & SA_SIGINFO) == 0 || current.sa_sigaction != flush_before_end) continue;
    sigaction(kEndingSignals[i], &state.before[i], nullptr);
    state.is_handled[i] = false;
  }
}

}  // namespace

ExitFlush::ExitFlush(TrackerWriter& writer) : writer_(&writer) {
  ExitState& state = exit_state();
  const std::lock_guard lock(state.mutex);
  for (auto& slot : state.writers) {
    TrackerWriter* nobody = nullptr;
    if (slot.compare_exchange_strong(nobody, writer_)) break;
  }
  if (state.users++ == 0) install_handlers(state);
  if (!state.at_exit_is_set) state.at_exit_is_set = std::atexit(flush_all_writers) == 0;
}

ExitFlush::~ExitFlush() {
  ExitState& state = exit_state();
  const std::lock_guard lock(state.mutex);
  for (auto& slot : state.writers) {
    TrackerWriter* own = writer_;
    if (slot.compare_exchange_strong(own, nullptr)) break;
  }
  while (state.in_handler.load() > 0) ::sched_yield();  // one may still use the writer
  if (--state.users == 0) remove_handlers(state);
}

}  // namespace accelerate::tracking
