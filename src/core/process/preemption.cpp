#include "accelerate/preemption.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>
#include <string>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

constexpr int kSignals = NSIG;

// A signal handler has nothing but what is static.
struct Watched {
  std::atomic<unsigned> count{0};  // how often it came
  struct sigaction before {};      // who handled it before the first watch
  int watches = 0;                 // guarded by the mutex
};
std::array<Watched, kSignals>& watched() {
  static std::array<Watched, kSignals> all;
  return all;
}
std::mutex& watched_mutex() {
  static std::mutex mutex;
  return mutex;
}

extern "C" void note_signal(int signal, siginfo_t* info, void* context) {
  static_assert(std::atomic<unsigned>::is_always_lock_free);
  Watched& own = watched()[static_cast<size_t>(signal)];
  own.count.fetch_add(1);
  if ((own.before.sa_flags & SA_SIGINFO) != 0) {
    if (own.before.sa_sigaction != nullptr) own.before.sa_sigaction(signal, info, context);
  } else if (own.before.sa_handler != SIG_DFL && own.before.sa_handler != SIG_IGN) {
    own.before.sa_handler(signal);
  }
}

void require_watchable(const std::vector<int>& signals) {
  for (const int signal : signals) {
    if (signal > 0 && signal < kSignals && signal != SIGKILL && signal != SIGSTOP) continue;
    throw UsageError(
        {.what = "signal " + std::to_string(signal) + " cannot be handled by a program",
         .where = "PreemptionOptions::signals",
         .hint = "name the signal that the cluster sends first: SIGTERM or SIGUSR1"});
  }
}

void begin_watch(Watched& own, int signal) {
  if (own.watches++ > 0) return;
  struct sigaction action {};
  action.sa_sigaction = note_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, nullptr, &own.before);  // before the handler may need it
  sigaction(signal, &action, nullptr);
}

}  // namespace

SignalWatch::SignalWatch(const std::vector<int>& signals) : signals_(signals) {
  require_watchable(signals);
  const std::lock_guard lock(watched_mutex());
  for (const int signal : signals_) {
    Watched& own = watched()[static_cast<size_t>(signal)];
    seen_before_.push_back(own.count.load());
    begin_watch(own, signal);
  }
}

SignalWatch::~SignalWatch() {
  const std::lock_guard lock(watched_mutex());
  for (const int signal : signals_) {
    Watched& own = watched()[static_cast<size_t>(signal)];
    if (--own.watches == 0) sigaction(signal, &own.before, nullptr);
  }
}

bool SignalWatch::raised() const noexcept {
  for (size_t i = 0; i < signals_.size(); ++i) {
    if (watched()[static_cast<size_t>(signals_[i])].count.load() != seen_before_[i]) return true;
  }
  return false;
}

}  // namespace accelerate
