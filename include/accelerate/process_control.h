// Which process runs what, and in which order: callables that run on one process only, blocks that
// the main process enters first, a flag that any process may raise for all.
#pragma once

#include <atomic>
#include <concepts>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "accelerate/export.h"
#include "accelerate/process_state.h"

namespace accelerate {

class Communicator;

namespace detail {

// The result of a call that does not run everywhere: nothing for void, a pointer for a reference
// (null elsewhere), a std::optional for the rest.
template <class T>
struct ResultHere {
  using Type = std::optional<std::remove_cv_t<T>>;
};
template <class T>
requires std::is_void_v<T>
struct ResultHere<T> {
  using Type = void;
};
template <class T>
requires std::is_reference_v<T>
struct ResultHere<T> {
  using Type = std::remove_reference_t<T>*;
};

// Throws UsageError, on the rank of `state`, unless 0 <= index < count.
ACCELERATE_EXPORT void check_process_index(const ProcessState& state, int index, int count,
                                           const char* operation);

}  // namespace detail

// A function that runs on one process and does nothing on the others. Called with the arguments of
// the function; gives what it returns where it ran:
//   void -> void,   T -> std::optional<T>, empty elsewhere,   T& -> T*, null elsewhere
// A copy or move of it is one of the function. Calls do not communicate and need not be made by
// all processes; exceptions of the function are passed on.
template <class Function>
class OnProcess {
 public:
  OnProcess(bool runs_here, Function function)
      : runs_here_(runs_here), function_(std::move(function)) {}

  // Whether this is the process on which it runs.
  bool runs_here() const { return runs_here_; }

  template <class... Args>
  requires std::invocable<Function&, Args...>
  auto operator()(Args&&... args) { return call(function_, std::forward<Args>(args)...); }

  template <class... Args>
  requires std::invocable<const Function&, Args...>
  auto operator()(Args&&... args) const { return call(function_, std::forward<Args>(args)...); }

 private:
  template <class F, class... Args>
  auto call(F& function, Args&&... args) const ->
      typename detail::ResultHere<std::invoke_result_t<F&, Args...>>::Type {
    using Result = std::invoke_result_t<F&, Args...>;
    if constexpr (std::is_void_v<Result>) {
      if (runs_here_) std::invoke(function, std::forward<Args>(args)...);
    } else if constexpr (std::is_reference_v<Result>) {
      if (!runs_here_) return nullptr;
      auto&& result = std::invoke(function, std::forward<Args>(args)...);
      return &result;
    } else {
      if (!runs_here_) return std::nullopt;
      return std::invoke(function, std::forward<Args>(args)...);
    }
  }

  bool runs_here_;
  Function function_;
};

// `function` for the main process (rank 0), for the main process of each machine, for the last
// rank, for rank `index`, and for local rank `index` of each machine. It is moved or copied in;
// wrap it in std::ref to keep it outside. Not collective. An index that no process has is a
// UsageError.
template <class Function>
[[nodiscard]] auto on_main_process(const ProcessState& state, Function&& function) {
  return OnProcess<std::decay_t<Function>>(state.is_main_process(),
                                           std::forward<Function>(function));
}

template <class Function>
[[nodiscard]] auto on_local_main_process(const ProcessState& state, Function&& function) {
  return OnProcess<std::decay_t<Function>>(state.is_local_main_process(),
                                           std::forward<Function>(function));
}

template <class Function>
[[nodiscard]] auto on_last_process(const ProcessState& state, Function&& function) {
  return OnProcess<std::decay_t<Function>>(state.is_last_process(),
                                           std::forward<Function>(function));
}

template <class Function>
[[nodiscard]] auto on_process(const ProcessState& state, int index, Function&& function) {
  detail::check_process_index(state, index, state.world_size(), "on_process");
  return OnProcess<std::decay_t<Function>>(state.rank() == index, std::forward<Function>(function));
}

template <class Function>
[[nodiscard]] auto on_local_process(const ProcessState& state, int index, Function&& function) {
  detail::check_process_index(state, index, state.local_world_size(), "on_local_process");
  return OnProcess<std::decay_t<Function>>(state.local_rank() == index,
                                           std::forward<Function>(function));
}

// A turn at a block of code: some processes run it first, the others when all of those have left.
//
//   {
//     const auto turn = main_process_first(state, communicator);
//     download_once();
//   }
//
// Collective: all ranks make one, in the same order as their other collective calls; the block
// itself must not contain a collective call. The processes that go first do not wait when they
// enter; when they leave they let the others in, however they leave: an exception there lets the
// others go on as well, and is an error only on its own rank. The others wait in the constructor,
// at most the timeout of the group, and throw CommError if a rank is lost.
class [[nodiscard]] ACCELERATE_EXPORT ProcessesFirst {
 public:
  ProcessesFirst(Communicator& communicator, bool goes_first);
  // Ends the turn. Does not throw: where a rank is lost it is logged, and the next collective call
  // throws the CommError.
  ~ProcessesFirst();
  ProcessesFirst(const ProcessesFirst&) = delete;
  ProcessesFirst& operator=(const ProcessesFirst&) = delete;

  // Ends the turn before the end of the scope; throws CommError if a rank is lost. A second call
  // does nothing.
  void end();

 private:
  Communicator& communicator_;
  bool others_wait_;
};

// The main process goes first.
ACCELERATE_EXPORT ProcessesFirst main_process_first(const ProcessState& state,
                                                    Communicator& communicator);

// The main process of each machine goes first, all of them at the same time; the others follow when
// the main processes of all machines have left. Collective over all ranks, not over a machine.
ACCELERATE_EXPORT ProcessesFirst local_main_process_first(const ProcessState& state,
                                                          Communicator& communicator);

// Runs `work` and returns when all ranks are done with theirs, however long one of them takes: the
// ranks exchange heartbeats twice a second, so that none runs into the timeout of the group. For
// work of uneven length: a download, a large file that one rank writes.
//
//   without_timeout(communicator, [&] {
//     if (state.is_main_process()) download(folder);
//   });
//
// Collective: all ranks. `work` runs on this thread and must not make collective calls. What it
// throws is thrown here when all ranks are done; the other ranks throw CommError with its message.
// Throws CommError, after `work`, if a rank is lost meanwhile.
ACCELERATE_EXPORT void without_timeout(Communicator& communicator,
                                       const std::function<void()>& work);

// A flag that any process may raise and all of them see at the next check: to stop all ranks
// early because of what one of them saw.
class ACCELERATE_EXPORT Trigger {
 public:
  // Not collective; from any thread, also from a signal handler.
  void set() noexcept { raised_.store(true); }

  // Whether a rank raised the flag since the last check; the same answer on all ranks. Lowers it:
  // the next check is false unless it was raised again. Collective.
  bool check(Communicator& communicator);

  // Whether it was raised here and not checked yet. Not collective.
  bool is_raised() const noexcept { return raised_.load(); }

 private:
  static_assert(std::atomic<bool>::is_always_lock_free);
  std::atomic<bool> raised_{false};
};

}  // namespace accelerate
