#include "trace/trace_additions.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <span>

#include "accelerate/profiler.h"
#include "base/json_quote.h"
#include "files/durable/mapped_file.h"
#include "files/durable/replace_file.h"

namespace accelerate::trace {
namespace {

// Nanoseconds are as exact as clocks are.
std::string microseconds(double us) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.3f", us);
  return text;
}

std::string quoted(std::string_view text) {
  std::string json;
  append_json_text(json, text);
  return json;
}

std::string complete_event(const TraceAdditions::Span& span, std::string_view category,
                           int64_t process, const std::string& arguments) {
  return R"({"ph": "X", "cat": ")" + std::string(category) + R"(", "name": )" + quoted(span.name) +
         R"(, "pid": )" + std::to_string(process) + R"(, "tid": )" + std::to_string(span.thread) +
         R"(, "ts": )" + microseconds(span.begin_us) + R"(, "dur": )" +
         microseconds(std::max(0.0, span.end_us - span.begin_us)) + R"(, "args": {)" + arguments +
         "}}";
}

// Where the list of events begins. The key cannot stand in a text, where quotes are escaped.
std::optional<size_t> begin_of_events(std::string_view text) {
  constexpr std::string_view kKey = "\"traceEvents\"";
  const size_t key = text.find(kKey);
  if (key == text.npos) return std::nullopt;
  const size_t colon = text.find_first_not_of(" \t\r\n", key + kKey.size());
  if (colon == text.npos || text[colon] != ':') return std::nullopt;
  const size_t bracket = text.find_first_not_of(" \t\r\n", colon + 1);
  if (bracket == text.npos || text[bracket] != '[') return std::nullopt;
  return bracket + 1;
}

// To what times are relative. The key stands before the events or behind them.
std::optional<int64_t> base_in(std::string_view text) {
  constexpr std::string_view kKey = "\"baseTimeNanoseconds\":";
  constexpr size_t kEnd = size_t{1} << 16;
  size_t key = text.substr(0, kEnd).find(kKey);
  if (key == text.npos) key = text.rfind(kKey);
  if (key == text.npos) return std::nullopt;
  const size_t begin = text.find_first_not_of(' ', key + kKey.size());
  int64_t base = 0;
  if (begin != text.npos) std::from_chars(text.data() + begin, text.data() + text.size(), base);
  return base;
}

void write_text(files::ByteSink& sink, std::string_view text) {
  sink.write(std::as_bytes(std::span(text)));
}

void copy_with_events(std::string_view text, size_t begin, const std::vector<std::string>& events,
                      files::ByteSink& sink) {
  write_text(sink, text.substr(0, begin));
  const size_t next = text.find_first_not_of(" \t\r\n", begin);
  const bool has_own = next != text.npos && text[next] != ']';
  for (size_t i = 0; i < events.size(); ++i) {
    write_text(sink, "\n  ");
    write_text(sink, events[i]);
    if (has_own || i + 1 < events.size()) write_text(sink, ",");
  }
  write_text(sink, text.substr(begin));
}

}  // namespace

void TraceAdditions::add_annotation(const Span& span) {
  events_.push_back(complete_event(span, "user_annotation", process_, ""));
}

void TraceAdditions::add_exchange(const Exchange& exchange) {
  events_.push_back(complete_event(exchange.span, kExchangeCategory, process_,
                                   R"("group": )" + std::to_string(exchange.group) +
                                       R"(, "exchange": )" + std::to_string(exchange.number) +
                                       R"(, "operation": )" + std::to_string(exchange.operation)));
}

void TraceAdditions::add_counter(std::string_view name, double time_us, int64_t value) {
  events_.push_back(R"({"ph": "C", "name": )" + quoted(name) + R"(, "pid": )" +
                    std::to_string(process_) + R"(, "tid": 0, "ts": )" + microseconds(time_us) +
                    R"(, "args": {"bytes": )" + std::to_string(value) + "}}");
}

void TraceAdditions::name_thread(int64_t thread, std::string_view name, int64_t place) {
  const std::string who =
      R"(, "pid": )" + std::to_string(process_) + R"(, "tid": )" + std::to_string(thread);
  events_.push_back(R"({"ph": "M", "name": "thread_name", "ts": 0)" + who +
                    R"(, "args": {"name": )" + quoted(name) + "}}");
  events_.push_back(R"({"ph": "M", "name": "thread_sort_index", "ts": 0)" + who +
                    R"(, "args": {"sort_index": )" + std::to_string(place) + "}}");
}

void write_with_additions(
    const std::filesystem::path& source, const std::filesystem::path& target,
    const std::function<std::vector<std::string>(int64_t base_ns)>& make_events) {
  try {
    const MappedFile file(source, "the recorded trace");
    file.begin_scan();
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
    const auto begin = begin_of_events(text);
    if (!begin) {
      throw ProfileError({.what = "libtorch has written a trace without a list of events",
                          .where = source.string(),
                          .hint = "is this a version of libtorch that the library supports?"});
    }
    const std::optional<int64_t> base_ns = base_in(text);
    const size_t last = text.find_last_not_of(" \t\r\n");
    if (!base_ns || text[last] != '}') {  // libtorch does not tell when it cannot write
      throw ProfileError({.what = "libtorch has written only a part of its trace",
                          .where = source.string(),
                          .hint = "set TMPDIR to a folder with room for traces"});
    }
    const std::vector<std::string> events = make_events(*base_ns);
    files::replace_file(
        target, [&](files::ByteSink& sink) { copy_with_events(text, *begin, events, sink); });
  } catch (const ProfileError&) {
    throw;
  } catch (const Error& error) {  // of the mapping or of the new file
    throw ProfileError({.what = "the trace cannot be written: " + error.message(),
                        .where = target.string(),
                        .hint = error.hint()});
  }
}

}  // namespace accelerate::trace
