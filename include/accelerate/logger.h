// Messages of a training program that runs on many ranks: written once, or by every rank in turn.
//
//   accelerate::Logger logger("train", accelerator, {.level = "info"});
//   logger.info("12 batches an epoch");                                // the main process alone
//   logger.debug("my share is 0..99", {.main_process_only = false});   // every rank, as it comes
//   logger.info("memory 812 MiB", {.in_order = true});                 // rank 0, then 1, then 2
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "accelerate/export.h"
#include "accelerate/log.h"

namespace accelerate {

class Communicator;
class ProcessState;

// A level, or its name as parse_log_level() takes it; unset: the one of ACCELERATE_LOG_LEVEL.
class LogLevelSetting {
 public:
  LogLevelSetting() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): `.level = LogLevel::kInfo`
  LogLevelSetting(LogLevel level) : level_(level) {}
  // NOLINTNEXTLINE(google-explicit-constructor): `.level = "info"`
  LogLevelSetting(const char* word) : level_(parse_log_level(word)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): the same
  LogLevelSetting(const std::string& word) : level_(parse_log_level(word)) {}

  LogLevel value() const { return level_ ? *level_ : log_level(); }

 private:
  std::optional<LogLevel> level_;
};

// What a line of a log looks like.
enum class LogFormat {
  kText,  // [rank 1] warning: train: the loss is not finite
  // {"time":"2026-11-19T13:05:11.250Z","level":"warning","rank":1,"host":"node1","pid":71,
  //  "logger":"train","message":"the loss is not finite"}
  kJson,
};

struct LoggerOptions {
  LogLevelSetting level{};         // what is below is not written
  std::ostream* stream = nullptr;  // where it is written; standard error if null
  // Unset: that of ACCELERATE_LOG_FORMAT ("text" or "json"), which accelerate::log() follows too.
  std::optional<LogFormat> format{};
};

// Who writes a message.
struct LogOptions {
  bool main_process_only = true;  // false: every rank that comes here, in no order
  // Every rank, one after the other, whatever main_process_only says. The call is then collective,
  // also where the level lets nothing through.
  bool in_order = false;
};

class Logger;

// A logger for code that has no accelerator at hand. The rank is the one that the launcher of this
// process gave it (torchrun's, Open MPI's, PMI's, MVAPICH's or SLURM's variable). It knows no other
// ranks: {.in_order = true} is a UsageError. Throws ConfigError for a bad ACCELERATE_LOG_LEVEL or
// ACCELERATE_LOG_FORMAT.
ACCELERATE_EXPORT Logger get_logger(std::string name, const LoggerOptions& options = {});

// Writes lines such as
//   [rank 1] warning: train: the loss is not finite
// or objects of JSON (LogFormat), each in one call, so that lines of several ranks do not mix;
// without the rank if there is only one process, without the name if that is empty. Progress bars
// on the terminal stay below the lines. Calls without in_order come from any thread and never block
// on other ranks. Copies share the level and what warning_once() has written.
class ACCELERATE_EXPORT Logger {
 public:
  // Copies what it needs from `state`. `communicator`, which only in_order uses, must outlive
  // such calls.
  Logger(std::string name, const ProcessState& state, Communicator& communicator,
         const LoggerOptions& options = {});
  // `accelerator` has state() and communicator().
  template <class Accelerator>
  Logger(std::string name, const Accelerator& accelerator, const LoggerOptions& options = {})
      : Logger(std::move(name), accelerator.state(), accelerator.communicator(), options) {}

  // Throws UsageError for kOff, which is not a level to write at; CommError if a rank is lost while
  // they take turns.
  void log(LogLevel level, std::string_view text, LogOptions options = {});
  void debug(std::string_view text, LogOptions options = {}) {
    log(LogLevel::kDebug, text, options);
  }
  void info(std::string_view text, LogOptions options = {}) { log(LogLevel::kInfo, text, options); }
  void warning(std::string_view text, LogOptions options = {}) {
    log(LogLevel::kWarning, text, options);
  }
  void error(std::string_view text, LogOptions options = {}) {
    log(LogLevel::kError, text, options);
  }
  void critical(std::string_view text, LogOptions options = {}) {
    log(LogLevel::kCritical, text, options);
  }

  // A warning that later calls with the same text do not repeat. With in_order every call is
  // collective, also on ranks that write nothing.
  void warning_once(std::string_view text, LogOptions options = {});

  const std::string& name() const;
  LogFormat format() const;
  LogLevel level() const;
  void set_level(LogLevel level);
  bool is_enabled_for(LogLevel level) const { return level >= this->level(); }

 private:
  friend Logger get_logger(std::string name, const LoggerOptions& options);
  struct ACCELERATE_HIDDEN Impl;
  explicit Logger(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace accelerate
