#include "accelerate/logger.h"

#include <atomic>
#include <cstdio>
#include <functional>
#include <mutex>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"
#include "accelerate/process_state.h"
#include "base/bar_screen.h"
#include "base/log_line.h"
#include "base/own_rank.h"

namespace accelerate {

struct Logger::Impl {
  Impl(std::string name, int rank, int world_size, Communicator* communicator,
       const LoggerOptions& options)
      : name(std::move(name)),
        rank(rank),
        world_size(world_size),
        communicator(communicator),
        stream(options.stream),
        format(options.format ? *options.format : log_format()),
        level(options.level.value()) {}

  void write(LogLevel level, std::string_view text) {
    const std::string own = world_size > 1 ? std::to_string(rank) : "";
    const std::string line =
        log_line_of({.level = level, .rank = own, .name = name, .text = text}, format);
    if (stream == nullptr) return write_above_bars(stderr, line);
    const std::lock_guard lock(mutex);
    *stream << line << std::flush;
  }

  // Ranks may have different levels, and differ in what they have said: who writes nothing takes
  // its turn all the same.
  void take_turns(LogLevel level, std::string_view text, bool speaks) {
    if (communicator == nullptr) {
      throw UsageError({.what = "this logger knows no other ranks to take turns with",
                        .where = "LogOptions::in_order",
                        .hint = "make it as Logger(name, accelerator)"});
    }
    for (int turn = 0; turn < world_size; ++turn) {
      if (turn == rank && speaks) write(level, text);
      communicator->barrier();
    }
  }

  bool is_new(std::string_view text) {
    const std::lock_guard lock(mutex);
    return said_once.emplace(text).second;
  }

  const std::string name;
  const int rank;
  const int world_size;
  Communicator* const communicator;
  std::ostream* const stream;
  const LogFormat format;
  std::atomic<LogLevel> level;
  std::mutex mutex;  // of the stream and what was said
  std::set<std::string, std::less<>> said_once;
};

Logger::Logger(std::string name, const ProcessState& state, Communicator& communicator,
               const LoggerOptions& options)
    : impl_(std::make_shared<Impl>(std::move(name), state.rank(), state.world_size(), &communicator,
                                   options)) {}

Logger get_logger(std::string name, const LoggerOptions& options) {
  const std::string rank = own_rank();
  // Which rank it is says more than how many there are: with one it is not shown.
  constexpr int kSeveral = 2;
  return Logger(std::make_shared<Logger::Impl>(std::move(name), rank.empty() ? 0 : std::stoi(rank),
                                               rank.empty() ? 1 : kSeveral, nullptr, options));
}

void Logger::log(LogLevel level, std::string_view text, LogOptions options) {
  if (level == LogLevel::kOff) {
    throw UsageError({.what = "'off' is not a level to write at",
                      .where = "Logger::log",
                      .hint = "use debug, info, warning, error or critical"});
  }
  const bool enabled = is_enabled_for(level);
  if (!options.in_order) {
    if (enabled && (!options.main_process_only || impl_->rank == 0)) impl_->write(level, text);
    return;
  }
  impl_->take_turns(level, text, /*speaks=*/enabled);
}

void Logger::warning_once(std::string_view text, LogOptions options) {
  const bool is_new = impl_->is_new(text);
  if (options.in_order) {
    impl_->take_turns(LogLevel::kWarning, text, is_new && is_enabled_for(LogLevel::kWarning));
  } else if (is_new) {
    warning(text, options);
  }
}

const std::string& Logger::name() const { return impl_->name; }
LogFormat Logger::format() const { return impl_->format; }
LogLevel Logger::level() const { return impl_->level; }
void Logger::set_level(LogLevel level) { impl_->level = level; }

}  // namespace accelerate
