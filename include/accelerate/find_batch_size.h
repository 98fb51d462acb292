// The largest batch size that memory allows, found by trying.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "accelerate/communicator_pointer.h"
#include "accelerate/export.h"

namespace accelerate {

struct BatchSizeOptions {
  int64_t starting_batch_size = 128;
  // The next size to try after one that did not fit; must be smaller. Nine tenths, rounded down,
  // where it is not set.
  std::function<int64_t(int64_t)> reduce{};
  // The ranks that must agree on a size; this process alone where it is not set.
  CommunicatorPointer communicator{};
};

// True if `error` says that memory ran out, on the host or on a device: then a smaller batch may
// fit.
ACCELERATE_EXPORT bool should_reduce_batch_size(const std::exception& error);

namespace detail {

class ACCELERATE_EXPORT BatchSizeSearch {
 public:
  explicit BatchSizeSearch(BatchSizeOptions options);
  // The size to try now, with cached device memory given back. Throws UsageError at zero.
  int64_t next();
  // After an attempt that threw `error` or nothing: true if it counts on all ranks, false to go on
  // with a smaller size. Collective over the communicator. Throws what must not be tried again.
  bool succeeded(const std::exception_ptr& error);

 private:
  BatchSizeOptions options_;
  int64_t batch_size_;
};

}  // namespace detail

// Calls `function(batch_size)` with smaller and smaller sizes until it does not run out of memory,
// and returns its result. Other exceptions are passed on. Throws UsageError when the size reaches
// zero.
//
// With a communicator it is collective: all ranks, same options. If memory runs out on one rank,
// all try again with the smaller size. That rank leaves `function` early, so the others must not
// wait there for it forever: open the accelerator or communicator that `function` uses inside of
// it, apart from the one given here. When the failing rank closes it, the others get a CommError,
// which is recognised as its consequence. An error of another kind on one rank is thrown there
// and becomes CommError that names the rank on the others.
template <class Function>
auto find_executable_batch_size(Function&& function, BatchSizeOptions options = {}) {
  using Result = std::decay_t<std::invoke_result_t<Function&, int64_t>>;
  detail::BatchSizeSearch search(std::move(options));
  for (;;) {
    const int64_t batch_size = search.next();
    std::exception_ptr error;
    if constexpr (std::is_void_v<Result>) {
      try {
        function(batch_size);
      } catch (...) {
        error = std::current_exception();
      }
      if (search.succeeded(error)) return;
    } else {
      std::optional<Result> result;
      try {
        result.emplace(function(batch_size));
      } catch (...) {
        error = std::current_exception();
      }
      if (search.succeeded(error)) return *std::move(result);
    }
  }
}

}  // namespace accelerate
