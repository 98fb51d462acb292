// One round ahead of what is handed out. Internal: users do not call it.
#pragma once

#include <exception>
#include <optional>
#include <utility>

namespace accelerate::detail {

// Hands out drafts one round late, so that the last one is known as such. An exception of a round
// comes in its place, after the drafts before it.
template <class Draft>
class ReadAhead {
 public:
  // `read` gives the next draft, nothing at the end; it is not called again after that. False at
  // the end.
  template <class Read>
  bool next(Draft& draft, Read read) {
    if (!started_) fetch(read);
    started_ = true;
    if (error_) std::rethrow_exception(error_);
    if (!ahead_) return false;
    draft = std::move(*ahead_);
    fetch(read);
    draft.info.is_last = !ahead_ && !error_;
    return true;
  }

 private:
  template <class Read>
  void fetch(Read& read) {
    ahead_.reset();
    try {
      ahead_ = read();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  bool started_ = false;
  std::optional<Draft> ahead_;
  std::exception_ptr error_;
};

}  // namespace accelerate::detail
