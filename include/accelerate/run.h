// How main() ends when the program cannot continue: one message, and an exit code that tells
// errors of this library apart.
#pragma once

#include <exception>
#include <functional>
#include <type_traits>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/export.h"

namespace accelerate {

// The status of a program that ended by an accelerate::Error.
inline constexpr int kErrorExitCode = 70;

namespace detail {
// Reports once what ended the program: to `accelerate launch` if that started this process,
// which prints it for all ranks together, else on standard error. Returns the exit code.
ACCELERATE_EXPORT int report_uncaught(const std::exception& error) noexcept;
}  // namespace detail

// Calls `body`, for use as the whole of main():
//
//   int main(int argc, char** argv) {
//     return accelerate::run([&] { train(argc, argv); });
//   }
//
// Returns what `body` returns, 0 if that is nothing. If it throws an Error, prints its message and
// returns kErrorExitCode; for another std::exception likewise 1, without the stack frames that
// libtorch adds to its messages. Objects inside `body` are destroyed before that. Without run() the
// program is aborted, and every rank prints the message.
template <class Body>
int run(Body&& body) {
  static_assert(std::is_invocable_v<Body>, "accelerate::run() takes a function without arguments");
  using Result = std::invoke_result_t<Body>;
  static_assert(std::is_void_v<Result> || std::is_convertible_v<Result, int>,
                "accelerate::run() takes a function that returns nothing or an exit code");
  try {
    if constexpr (std::is_void_v<Result>) {
      std::invoke(std::forward<Body>(body));
      return 0;
    } else {
      return std::invoke(std::forward<Body>(body));
    }
  } catch (const std::exception& error) {
    return detail::report_uncaught(error);
  }
}

}  // namespace accelerate
