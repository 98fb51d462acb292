// The errors that every part of the library throws. Standard headers only: every folder of the
// library may include it, also those without libtorch.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "accelerate/export.h"

namespace accelerate {

// What an error says. `what` is one sentence; `where` a file, flag, variable or operation; `hint`
// what the reader can do about it.
struct ErrorInfo {
  std::string what{};
  std::string where{};
  std::string hint{};
};

// Base of all errors of this library. what() reads
//   [rank 3 of 8] CheckpointError: optimizer.bin holds 148 tensors, the prepared AdamW has 150
//     at   runs/a/step_400/optimizer.bin
//     try  prepare the model that was saved
// with the rank once set_rank() was called, and the last two lines only if they are known.
class ACCELERATE_EXPORT Error : public std::runtime_error {
 public:
  const char* what() const noexcept override { return text_.c_str(); }

  // The sentence alone, without rank, place and hint.
  const std::string& message() const noexcept { return info_.what; }
  const std::string& where() const noexcept { return info_.where; }
  const std::string& hint() const noexcept { return info_.hint; }
  // The rank on which the error was thrown, if it has been stamped.
  std::optional<int> rank() const noexcept { return rank_; }

  // Stamps the error with the rank it was thrown on; an existing stamp stays.
  void set_rank(int rank, int world_size);

 protected:
  Error(std::string_view kind, ErrorInfo info);

 private:
  void compose();

  std::string kind_;
  ErrorInfo info_;
  std::optional<int> rank_;
  int world_size_ = 1;
  std::string text_;
};

// Wrong order of calls, an object that was not prepared, a bad argument, ranks that disagree.
class ACCELERATE_EXPORT UsageError : public Error {
 public:
  explicit UsageError(ErrorInfo info) : Error("UsageError", std::move(info)) {}
};

// A flag, a configuration key or an environment variable that is invalid.
class ACCELERATE_EXPORT ConfigError : public Error {
 public:
  explicit ConfigError(ErrorInfo info) : Error("ConfigError", std::move(info)) {}
};

// Rendezvous failed, a peer was lost, a collective timed out.
class ACCELERATE_EXPORT CommError : public Error {
 public:
  explicit CommError(ErrorInfo info) : Error("CommError", std::move(info)) {}
};

// A checkpoint that is missing, truncated, mismatched or cannot be written.
class ACCELERATE_EXPORT CheckpointError : public Error {
 public:
  explicit CheckpointError(ErrorInfo info) : Error("CheckpointError", std::move(info)) {}
};

// A dataset, sampler or collate step produced something unusable.
class ACCELERATE_EXPORT DataError : public Error {
 public:
  explicit DataError(ErrorInfo info) : Error("DataError", std::move(info)) {}
};

}  // namespace accelerate
