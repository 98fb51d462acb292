#include "core/profile/memory_timeline.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "accelerate/profiler.h"
#include "base/text_table.h"
#include "core/profile/profile_text.h"
#include "core/profile/trace_recording.h"
#include "files/durable/replace_file.h"

namespace accelerate {
namespace {

using compat::KinetoRecord;

// What was under way when something was allocated; "" if nothing was.
std::string allocating_operator(const std::vector<KinetoRecord>& records,
                                const KinetoRecord& allocation) {
  const int64_t parent = processor_parent(records, &allocation - records.data());
  return parent < 0 ? "" : records[static_cast<size_t>(parent)].name;
}

double since_begin(const KinetoRecord& record, int64_t begin_ns) {
  return static_cast<double>(record.begin_ns - begin_ns) / 1000;
}

// A field of a line of CSV.
std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == text.npos) return std::string(text);
  std::string field = "\"";
  for (const char letter : text)
    field += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return field + '"';
}

}  // namespace

std::vector<const KinetoRecord*> allocations_in_order(const std::vector<KinetoRecord>& records) {
  std::vector<const KinetoRecord*> allocations;
  for (const KinetoRecord& record : records) {
    if (record.kind == KinetoRecord::Kind::kAllocation) allocations.push_back(&record);
  }
  std::sort(allocations.begin(), allocations.end(), [](const auto* a, const auto* b) {
    return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a < b;
  });
  return allocations;
}

void leave_out_earlier_memory(std::vector<KinetoRecord>& records) {
  std::optional<int64_t> earlier;
  for (const KinetoRecord* allocation : allocations_in_order(records)) {
    if (!allocation->device.is_cpu()) continue;
    if (!earlier) earlier = allocation->bytes_in_use - allocation->bytes;
    records[static_cast<size_t>(allocation - records.data())].bytes_in_use -= *earlier;
  }
}

std::vector<MemoryPeak> ProfileTrace::memory() const {
  const auto& records = impl_->records();
  std::map<std::string, MemoryPeak> devices;
  for (const KinetoRecord* allocation : allocations_in_order(records)) {
    MemoryPeak& device = devices[allocation->device.str()];
    device.left_bytes += allocation->bytes;
    if (allocation->bytes > 0) {
      ++device.allocations;
      device.allocated_bytes += allocation->bytes;
    }
    if (allocation->bytes_in_use <= device.peak_bytes) continue;
    device.peak_bytes = allocation->bytes_in_use;
    device.peak_us = since_begin(*allocation, impl_->kineto.begin_ns());
    device.peak_operator = allocating_operator(records, *allocation);
  }
  std::vector<MemoryPeak> peaks;
  for (auto& [name, device] : devices) {
    device.device = name;
    peaks.push_back(std::move(device));
  }
  return peaks;
}

std::string ProfileTrace::memory_table() const {
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kLeft, Align::kRight,
                   Align::kRight, Align::kRight});
  table.add({"device", "peak", "at", "in", "allocations", "allocated", "left"});
  for (const MemoryPeak& device : memory()) {
    table.add({device.device, profile_bytes(device.peak_bytes), profile_time(device.peak_us),
               device.peak_operator, std::to_string(device.allocations),
               profile_bytes(device.allocated_bytes), profile_bytes(device.left_bytes)});
  }
  return table.text();
}

void ProfileTrace::export_memory_timeline(const std::filesystem::path& path) const {
  const auto& records = impl_->records();
  try {
    files::replace_file(path, [&](files::ByteSink& sink) {
      std::string text = "time_us,device,bytes,bytes_in_use,operator\n";
      for (const KinetoRecord* allocation : allocations_in_order(records)) {
        char time[48];
        std::snprintf(time, sizeof(time), "%.3f",
                      since_begin(*allocation, impl_->kineto.begin_ns()));
        text += std::string(time) + ',' + allocation->device.str() + ',' +
                std::to_string(allocation->bytes) + ',' + std::to_string(allocation->bytes_in_use) +
                ',' + csv_field(allocating_operator(records, *allocation)) + '\n';
      }
      sink.write(std::as_bytes(std::span(text)));
    });
  } catch (const Error& error) {
    throw ProfileError({.what = "the memory timeline cannot be written: " + error.message(),
                        .where = path.string(),
                        .hint = error.hint()});
  }
}

}  // namespace accelerate
