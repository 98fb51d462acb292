// What a trace of libtorch is given beside its own events.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::trace {

// Where exchanges are shown: rows of their own, since several may be under way at once.
inline constexpr std::string_view kExchangeCategory = "accelerate_exchange";

// JSON objects for the list of events. Times are microseconds on the trace's own scale.
class TraceAdditions {
 public:
  explicit TraceAdditions(int64_t process) : process_(process) {}

  struct Span {
    std::string_view name{};
    int64_t thread = 0;
    double begin_us = 0;
    double end_us = 0;
  };
  // A user annotation, which tools show around the operators of its thread.
  void add_annotation(const Span& span);
  struct Exchange {
    Span span{};
    uint16_t group = 0;
    uint32_t number = 0;     // in its group, the same on all its ranks
    uint32_t operation = 0;  // differs where ranks cannot be in the same one
  };
  void add_exchange(const Exchange& exchange);
  // A point of a curve.
  void add_counter(std::string_view name, double time_us, int64_t value);
  void name_thread(int64_t thread, std::string_view name, int64_t place);

  const std::vector<std::string>& events() const { return events_; }

 private:
  const int64_t process_;
  std::vector<std::string> events_;
};

// Copies the trace `source` to `target`, with what `make_events` returns in front of its own
// events. Times in `source` are relative to `base_ns`, nanoseconds of Unix time. Written completely
// or not at all. Throws ProfileError.
void write_with_additions(
    const std::filesystem::path& source, const std::filesystem::path& target,
    const std::function<std::vector<std::string>(int64_t base_ns)>& make_events);

}  // namespace accelerate::trace
