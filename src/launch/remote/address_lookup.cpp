#include "launch/remote/address_lookup.h"

#include <signal.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::launch {
namespace {

// Signals are for the thread that reads them from its inbox: one that is started here blocks all.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

struct AddressLookup::Question {
  UniqueFd answered{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;
  std::optional<ResolvedHost> answer;

  void take(ResolvedHost resolved) {
    {
      const std::lock_guard lock(mutex);
      answer = std::move(resolved);
    }
    eventfd_write(answered.get(), 1);
  }
};

AddressLookup::AddressLookup(const std::string& host, int port)
    : question_(std::make_shared<Question>()) {
  if (!question_->answered) {
    throw CommError({.what = "cannot look " + host + " up: " + std::strerror(errno),
                     .hint = "raise the limit on open files (ulimit -n)"});
  }
  ResolvedHost in_figures = resolve(host, port, Resolving::kFiguresOnly);
  if (in_figures.addresses) {
    question_->take(std::move(in_figures));
    return;
  }
  const WithoutSignals guard;
  try {
    std::thread([question = question_, host, port] {
      question->take(resolve(host, port, Resolving::kNames));
    }).detach();
  } catch (const std::system_error& error) {  // no thread to be had now: the caller tries again
    question_->take({.error = std::string("cannot look it up: ") + error.what()});
  }
}

int AddressLookup::fd() const { return question_->answered.get(); }

std::optional<ResolvedHost> AddressLookup::answer() {
  const std::lock_guard lock(question_->mutex);
  return std::exchange(question_->answer, std::nullopt);
}

}  // namespace accelerate::launch
