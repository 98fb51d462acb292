// The table of operators.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "accelerate/profiler.h"
#include "base/nearest_name.h"
#include "base/text_table.h"
#include "base/word_list.h"
#include "core/profile/profile_text.h"
#include "core/profile/step_statistics.h"
#include "core/profile/trace_recording.h"

namespace accelerate {
namespace {

using compat::KinetoRecord;
using OperatorKey = std::pair<std::string, std::string>;  // name, shapes

bool is_on_processor(const KinetoRecord& record) {
  return record.kind == KinetoRecord::Kind::kOperator || record.kind == KinetoRecord::Kind::kSpan ||
         record.kind == KinetoRecord::Kind::kBackward;
}

double duration_us(const KinetoRecord& record) {
  return static_cast<double>(record.end_ns - record.begin_ns) / 1000;
}

// Adds up records by operator.
class OperatorSums {
 public:
  OperatorSums(const std::vector<KinetoRecord>& records, bool by_shape)
      : records_(records), by_shape_(by_shape), parents_(records.size(), -1) {
    for (size_t i = 0; i < records.size(); ++i) {
      parents_[i] = processor_parent(records, static_cast<int64_t>(i));
    }
    for (size_t i = 0; i < records.size(); ++i) add(i);
  }

  std::vector<OperatorTotals> take() {
    std::vector<OperatorTotals> all;
    for (auto& [key, totals] : totals_) {
      totals.name = key.first;
      totals.input_shapes = key.second;
      all.push_back(std::move(totals));
    }
    return all;
  }

 private:
  OperatorKey key_of(size_t place) const {
    const KinetoRecord& record = records_[place];
    if (record.name.starts_with(kStepMark)) return {"ProfilerStep*", ""};
    return {record.name, by_shape_ ? record.input_shapes : ""};
  }

  // `place` and the operators around it, each name once: what an operator does inside of one of its
  // own name is counted there.
  void for_each_around(int64_t place, const std::function<void(OperatorTotals&)>& visit) {
    std::vector<OperatorKey> seen;
    for (; place >= 0; place = parents_[static_cast<size_t>(place)]) {
      OperatorKey key = key_of(static_cast<size_t>(place));
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
      visit(totals_[key]);
      seen.push_back(std::move(key));
    }
  }

  void add(size_t place) {
    const KinetoRecord& record = records_[place];
    const int64_t parent = parents_[place];
    if (is_on_processor(record)) {
      OperatorTotals& own = totals_[key_of(place)];
      ++own.calls;
      own.self_cpu_us += duration_us(record);
      bool is_outermost = true;
      for (int64_t around = parent; around >= 0; around = parents_[static_cast<size_t>(around)]) {
        if (key_of(static_cast<size_t>(around)) == key_of(place)) is_outermost = false;
      }
      // Autocast calls an operator again with its inputs in another type.
      if (!is_inside_of_its_name(records_, static_cast<int64_t>(place))) own.flops += record.flops;
      if (is_outermost) own.cpu_us += duration_us(record);
      if (parent >= 0 && !runs_beside(place, parent)) {
        totals_[key_of(static_cast<size_t>(parent))].self_cpu_us -= duration_us(record);
      }
    } else if (record.kind == KinetoRecord::Kind::kDeviceWork && parent >= 0) {
      totals_[key_of(static_cast<size_t>(parent))].self_device_us += duration_us(record);
      for_each_around(parent,
                      [&](OperatorTotals& totals) { totals.device_us += duration_us(record); });
    } else if (record.kind == KinetoRecord::Kind::kAllocation && parent >= 0) {
      add_memory(record, parent);
    }
  }

  void add_memory(const KinetoRecord& record, int64_t parent) {
    const bool is_host = record.device.is_cpu();
    OperatorTotals& own = totals_[key_of(static_cast<size_t>(parent))];
    (is_host ? own.self_cpu_bytes : own.self_device_bytes) += record.bytes;
    for_each_around(parent, [&](OperatorTotals& totals) {
      (is_host ? totals.cpu_bytes : totals.device_bytes) += record.bytes;
    });
  }

  // What ends on another thread, or later, took nothing of its parent's time.
  bool runs_beside(size_t place, int64_t parent) const {
    return records_[place].end_ns > records_[static_cast<size_t>(parent)].end_ns;
  }

  const std::vector<KinetoRecord>& records_;
  const bool by_shape_;
  std::vector<int64_t> parents_;
  std::map<OperatorKey, OperatorTotals> totals_;
};

struct SortKey {
  std::string_view name;
  double (*value)(const OperatorTotals&);
};

constexpr std::array<SortKey, 10> kSortKeys = {{
    {"self_cpu_time_total", [](const OperatorTotals& t) { return t.self_cpu_us; }},
    {"cpu_time_total", [](const OperatorTotals& t) { return t.cpu_us; }},
    {"self_device_time_total", [](const OperatorTotals& t) { return t.self_device_us; }},
    {"device_time_total", [](const OperatorTotals& t) { return t.device_us; }},
    {"self_cpu_memory_usage",
     [](const OperatorTotals& t) { return static_cast<double>(t.self_cpu_bytes); }},
    {"cpu_memory_usage", [](const OperatorTotals& t) { return static_cast<double>(t.cpu_bytes); }},
    {"self_device_memory_usage",
     [](const OperatorTotals& t) { return static_cast<double>(t.self_device_bytes); }},
    {"device_memory_usage",
     [](const OperatorTotals& t) { return static_cast<double>(t.device_bytes); }},
    {"flops", [](const OperatorTotals& t) { return static_cast<double>(t.flops); }},
    {"count", [](const OperatorTotals& t) { return static_cast<double>(t.calls); }},
}};

const SortKey& sort_key(const std::string& asked_for) {
  std::string name = asked_for;
  if (const size_t cuda = name.find("cuda"); cuda != name.npos) name.replace(cuda, 4, "device");
  std::vector<std::string> known;
  for (const SortKey& key : kSortKeys) {
    if (key.name == name) return key;
    known.emplace_back(key.name);
  }
  const std::string near = nearest_name(name, known);
  throw UsageError(
      {.what = "operators cannot be sorted by \"" + asked_for + "\"",
       .where = "OperatorTableOptions::sort_by",
       .hint = near.empty() ? "one of " + joined(known) : "did you mean \"" + near + "\"?"});
}

// A column of the table.
struct Column {
  const char* heading;
  std::function<std::string(const OperatorTotals&)> text;
};

std::vector<Column> columns_for(const std::vector<OperatorTotals>& rows, double self_cpu_us,
                                double self_device_us) {
  const auto any = [&](auto has) { return std::any_of(rows.begin(), rows.end(), has); };
  std::vector<Column> columns{
      {"self CPU %",
       [=](const OperatorTotals& t) { return profile_share(t.self_cpu_us, self_cpu_us); }},
      {"self CPU", [](const OperatorTotals& t) { return profile_time(t.self_cpu_us); }},
      {"CPU total", [](const OperatorTotals& t) { return profile_time(t.cpu_us); }},
      {"CPU mean", [](const OperatorTotals& t) {
         return profile_time(t.cpu_us / static_cast<double>(std::max<int64_t>(1, t.calls)));
       }}};
  if (any([](const OperatorTotals& t) { return t.device_us > 0; })) {
    columns.push_back({"self device %", [=](const OperatorTotals& t) {
                         return profile_share(t.self_device_us, self_device_us);
                       }});
    columns.push_back(
        {"self device", [](const OperatorTotals& t) { return profile_time(t.self_device_us); }});
    columns.push_back(
        {"device total", [](const OperatorTotals& t) { return profile_time(t.device_us); }});
  }
  if (any([](const OperatorTotals& t) { return t.cpu_bytes != 0 || t.self_cpu_bytes != 0; })) {
    columns.push_back(
        {"CPU memory", [](const OperatorTotals& t) { return profile_bytes(t.cpu_bytes); }});
    columns.push_back({"self CPU memory",
                       [](const OperatorTotals& t) { return profile_bytes(t.self_cpu_bytes); }});
  }
  if (any([](const OperatorTotals& t) {
        return t.device_bytes != 0 || t.self_device_bytes != 0;
      })) {
    columns.push_back(
        {"device memory", [](const OperatorTotals& t) { return profile_bytes(t.device_bytes); }});
    columns.push_back({"self device memory",
                       [](const OperatorTotals& t) { return profile_bytes(t.self_device_bytes); }});
  }
  if (any([](const OperatorTotals& t) { return t.flops > 0; })) {
    columns.push_back({"FLOPs", [](const OperatorTotals& t) { return profile_flops(t.flops); }});
  }
  columns.push_back({"calls", [](const OperatorTotals& t) { return std::to_string(t.calls); }});
  return columns;
}

}  // namespace

std::vector<OperatorTotals> ProfileTrace::operators(const OperatorTableOptions& options) const {
  const SortKey& key = sort_key(options.sort_by);
  std::vector<OperatorTotals> all =
      OperatorSums(impl_->records(), options.group_by_input_shape).take();
  std::sort(all.begin(), all.end(), [&](const OperatorTotals& a, const OperatorTotals& b) {
    if (key.value(a) != key.value(b)) return key.value(a) > key.value(b);
    return std::tie(a.name, a.input_shapes) < std::tie(b.name, b.input_shapes);
  });
  return all;
}

std::string ProfileTrace::operator_table(const OperatorTableOptions& options) const {
  const std::vector<OperatorTotals> rows = operators(options);
  double self_cpu_us = 0;
  double self_device_us = 0;
  for (const OperatorTotals& row : rows) {
    self_cpu_us += row.self_cpu_us;
    self_device_us += row.self_device_us;
  }
  const std::vector<Column> columns = columns_for(rows, self_cpu_us, self_device_us);
  std::vector<Align> alignment(columns.size() + 1, Align::kRight);
  alignment.front() = Align::kLeft;
  std::vector<std::string> heading{"operator"};
  for (const Column& column : columns) heading.emplace_back(column.heading);
  if (options.group_by_input_shape) {
    alignment.push_back(Align::kLeft);
    heading.emplace_back("input shapes");
  }
  TextTable table(alignment);
  table.add(std::move(heading));
  const size_t limit = options.row_limit > 0 ? static_cast<size_t>(options.row_limit) : rows.size();
  for (size_t i = 0; i < std::min(limit, rows.size()); ++i) {
    std::vector<std::string> cells{rows[i].name};
    for (const Column& column : columns) cells.push_back(column.text(rows[i]));
    if (options.group_by_input_shape) cells.push_back(rows[i].input_shapes);
    table.add(std::move(cells));
  }
  std::string text = table.text();
  if (limit < rows.size()) text += "and " + std::to_string(rows.size() - limit) + " more\n";
  text += "self CPU time in all: " + profile_time(self_cpu_us) + "\n";
  if (self_device_us > 0) text += "device time in all: " + profile_time(self_device_us) + "\n";
  return text;
}

}  // namespace accelerate
