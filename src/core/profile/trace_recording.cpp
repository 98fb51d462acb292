#include "core/profile/trace_recording.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <system_error>
#include <unordered_map>

#include "core/profile/memory_timeline.h"
#include "trace/trace_additions.h"

namespace accelerate {
namespace {

using compat::KinetoRecord;

// Rows for exchanges and for threads of the library stand behind those of the program.
constexpr int64_t kFirstExchangeRow = 1'000'000'000;
constexpr int64_t kFirstThreadRow = 1'000'001'000;

// Times of the steady clock as the trace has them.
class TraceClock {
 public:
  TraceClock(int64_t clock_ns, int64_t base_ns) : shift_ns_(clock_ns - base_ns) {}
  double operator()(int64_t steady_ns) const {
    return static_cast<double>(steady_ns + shift_ns_) / 1000;
  }

 private:
  int64_t shift_ns_;
};

void add_spans(const RecordedEvents& events, int64_t own_row, const TraceClock& clock,
               trace::TraceAdditions& additions) {
  std::unordered_map<uint32_t, int64_t> rows{{events.own_thread, own_row}};
  for (const EventTimes& span : events.spans) {
    const auto next = kFirstThreadRow + static_cast<int64_t>(rows.size()) - 1;
    const auto [row, is_new] = rows.try_emplace(span.thread, next);
    if (is_new) additions.name_thread(next, "accelerate", next);
    additions.add_annotation({.name = span.name,
                              .thread = row->second,
                              .begin_us = clock(span.begin_ns),
                              .end_us = clock(span.end_ns)});
  }
}

// Those that are under way at the same time are on rows of their own.
void add_exchanges(std::vector<ExchangeTimes> exchanges, const TraceClock& clock,
                   trace::TraceAdditions& additions) {
  std::sort(exchanges.begin(), exchanges.end(),
            [](const auto& a, const auto& b) { return a.times.begin_ns < b.times.begin_ns; });
  std::vector<int64_t> ends;  // of the last one of each row
  for (const ExchangeTimes& exchange : exchanges) {
    auto row = std::find_if(ends.begin(), ends.end(),
                            [&](int64_t end_ns) { return end_ns <= exchange.times.begin_ns; });
    if (row == ends.end()) {
      const auto number = static_cast<int64_t>(ends.size());
      additions.name_thread(kFirstExchangeRow + number, "exchange", kFirstExchangeRow + number);
      row = ends.insert(ends.end(), 0);
    }
    *row = exchange.times.end_ns;
    additions.add_exchange({.span = {.name = exchange.times.name,
                                     .thread = kFirstExchangeRow + (row - ends.begin()),
                                     .begin_us = clock(exchange.times.begin_ns),
                                     .end_us = clock(exchange.times.end_ns)},
                            .group = exchange.group,
                            .number = exchange.number,
                            .operation = exchange.operation});
  }
}

void add_memory_curves(const std::vector<KinetoRecord>& records, int64_t base_ns,
                       trace::TraceAdditions& additions) {
  for (const KinetoRecord* allocation : allocations_in_order(records)) {
    additions.add_counter("memory " + allocation->device.str(),
                          static_cast<double>(allocation->begin_ns - base_ns) / 1000,
                          allocation->bytes_in_use);
  }
}

}  // namespace

TemporaryTrace::TemporaryTrace() {
  const auto refuse = [](const std::error_code& error, const std::string& where) {
    throw ProfileError({.what = "no temporary folder can be made: " + error.message(),
                        .where = where,
                        .hint = "set TMPDIR to a folder with room for traces"});
  };
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) refuse(error, "TMPDIR");
  std::string pattern = (parent / "accelerate-trace-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    refuse(std::error_code(errno, std::generic_category()), pattern);
  }
  folder_ = pattern;
}

TemporaryTrace::~TemporaryTrace() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

const std::vector<KinetoRecord>& ProfileTrace::Impl::records() const {
  if (!made_records) {
    made_records = kineto.records();
    leave_out_earlier_memory(*made_records);
  }
  return *made_records;
}

std::filesystem::path ProfileTrace::Impl::own_file() const {
  if (!saved) {
    saved = std::make_unique<TemporaryTrace>();
    try {
      kineto.save(saved->path());
    } catch (const std::exception& error) {
      const std::string where = saved->path().string();
      saved.reset();
      throw ProfileError({.what = std::string("libtorch cannot write its trace: ") + error.what(),
                          .where = where,
                          .hint = "set TMPDIR to a folder with room for traces"});
    }
  }
  return saved->path();
}

int64_t processor_parent(const std::vector<KinetoRecord>& records, int64_t place) {
  for (int64_t parent = records[static_cast<size_t>(place)].parent; parent >= 0;
       parent = records[static_cast<size_t>(parent)].parent) {
    const auto kind = records[static_cast<size_t>(parent)].kind;
    if (kind == KinetoRecord::Kind::kOperator || kind == KinetoRecord::Kind::kSpan ||
        kind == KinetoRecord::Kind::kBackward) {
      return parent;
    }
  }
  return -1;
}

bool is_inside_of_its_name(const std::vector<KinetoRecord>& records, int64_t place) {
  const std::string& name = records[static_cast<size_t>(place)].name;
  for (int64_t around = processor_parent(records, place); around >= 0;
       around = processor_parent(records, around)) {
    if (records[static_cast<size_t>(around)].name == name) return true;
  }
  return false;
}

int64_t ProfileTrace::step_num() const { return impl_->step_num; }

void ProfileTrace::export_chrome_trace(const std::filesystem::path& path) const {
  trace::write_with_additions(impl_->own_file(), path, [&](int64_t base_ns) {
    trace::TraceAdditions additions(getpid());
    const TraceClock clock(impl_->clock_ns, base_ns);
    add_spans(impl_->events, impl_->own_system_thread, clock, additions);
    add_exchanges(impl_->events.exchanges, clock, additions);
    if (impl_->has_memory) add_memory_curves(impl_->records(), base_ns, additions);
    return additions.events();
  });
}

}  // namespace accelerate
