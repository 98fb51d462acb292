// The table of modules.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/profiler.h"
#include "base/text_table.h"
#include "core/process/step_aggregator.h"
#include "core/profile/profile_text.h"
#include "core/profile/trace_recording.h"

namespace accelerate {
namespace {

using compat::KinetoRecord;

constexpr int64_t kNobody = -1;

// Finds for each record the module that it works for.
class ModuleOwners {
 public:
  ModuleOwners(const ProfileTrace::Impl& trace, const ModuleNames& names)
      : records_(trace.records()), names_(names), owners_(records_.size(), kNobody) {
    for (const EventTimes& span : trace.events.spans) {
      if (span.name != kForwardSpan || span.thread != trace.events.own_thread) continue;
      forwards_.emplace_back(span.begin_ns + trace.clock_ns, span.end_ns + trace.clock_ns);
    }
    merge_forwards();
    totals_.resize(names.names.size());
    for (size_t i = 0; i < records_.size(); ++i) add_forward(i);
    for (size_t i = 0; i < records_.size(); ++i) add_backward(i);
    for (size_t i = 0; i < records_.size(); ++i) add_device_work(i);
  }

  // Without submodules, in the order of the names.
  const std::vector<ModuleTotals>& totals() const { return totals_; }

 private:
  ModuleTotals& totals_of(int64_t owner) { return totals_[static_cast<size_t>(owner)]; }
  double time_of(size_t place) const {
    return static_cast<double>(records_[place].end_ns - records_[place].begin_ns) / 1000;
  }

  // A model may call another prepared one in its forward pass.
  void merge_forwards() {
    std::sort(forwards_.begin(), forwards_.end());
    std::vector<std::pair<int64_t, int64_t>> apart;
    for (const auto& forward : forwards_) {
      if (!apart.empty() && forward.first <= apart.back().second) {
        apart.back().second = std::max(apart.back().second, forward.second);
      } else {
        apart.push_back(forward);
      }
    }
    forwards_ = std::move(apart);
  }

  bool is_in_forward(const KinetoRecord& record) const {
    const int64_t middle = record.begin_ns + (record.end_ns - record.begin_ns) / 2;
    auto next = std::upper_bound(forwards_.begin(), forwards_.end(), std::pair(middle, INT64_MAX));
    return next != forwards_.begin() && middle <= std::prev(next)->second;
  }

  int64_t owner_by_inputs(const KinetoRecord& record) const {
    for (const void* input : record.inputs) {
      const auto owner = names_.owners.find(input);
      if (owner != names_.owners.end()) return static_cast<int64_t>(owner->second);
    }
    return kNobody;
  }

  void add_forward(size_t place) {
    const KinetoRecord& record = records_[place];
    if (record.kind != KinetoRecord::Kind::kOperator || !is_in_forward(record)) return;
    const int64_t parent = processor_parent(records_, static_cast<int64_t>(place));
    int64_t owner = parent < 0 ? kNobody : owners_[static_cast<size_t>(parent)];
    if (owner == kNobody) {
      owner = owner_by_inputs(record);
      if (owner != kNobody) {
        ++totals_of(owner).calls;
        totals_of(owner).forward_us += time_of(place);
      }
    }
    owners_[place] = owner;
    if (owner != kNobody && !is_inside_of_its_name(records_, static_cast<int64_t>(place))) {
      totals_of(owner).flops += record.flops;
    }
    // The last operator of a number made the node: earlier ones only saw which would be next.
    if (record.sequence >= 0) makers_[{record.thread, record.sequence}] = owner;
  }

  void add_backward(size_t place) {
    const KinetoRecord& record = records_[place];
    const int64_t parent = processor_parent(records_, static_cast<int64_t>(place));
    const int64_t around = parent < 0 ? kNobody : owners_[static_cast<size_t>(parent)];
    if (owners_[place] != kNobody) return;  // of the forward pass
    if (around != kNobody) {
      owners_[place] = around;
      if (is_backward_.contains(parent)) is_backward_.insert(static_cast<int64_t>(place));
      return;
    }
    if (record.kind != KinetoRecord::Kind::kBackward || record.sequence < 0) return;
    const auto maker = makers_.find({record.forward_thread, record.sequence});
    if (maker == makers_.end() || maker->second == kNobody) return;
    owners_[place] = maker->second;
    is_backward_.insert(static_cast<int64_t>(place));
    totals_of(maker->second).backward_us += time_of(place);
  }

  void add_device_work(size_t place) {
    if (records_[place].kind != KinetoRecord::Kind::kDeviceWork) return;
    const int64_t parent = processor_parent(records_, static_cast<int64_t>(place));
    const int64_t owner = parent < 0 ? kNobody : owners_[static_cast<size_t>(parent)];
    if (owner == kNobody) return;
    ModuleTotals& totals = totals_of(owner);
    (is_backward_.contains(parent) ? totals.backward_device_us : totals.forward_device_us) +=
        time_of(place);
  }

  const std::vector<KinetoRecord>& records_;
  const ModuleNames& names_;
  std::vector<int64_t> owners_;
  std::set<int64_t> is_backward_;
  std::vector<std::pair<int64_t, int64_t>> forwards_;       // in order, apart from each other
  std::map<std::pair<uint64_t, int64_t>, int64_t> makers_;  // by thread and number
  std::vector<ModuleTotals> totals_;
};

// "a.b" lies in "a", and all lie in "".
bool lies_in(const std::string& name, const std::string& outer) {
  return outer.empty() || name == outer || name.starts_with(outer + '.');
}

}  // namespace

std::vector<ModuleTotals> ProfileTrace::modules() const {
  if (!impl_->modules) return {};
  const std::vector<std::string>& names = impl_->modules->names;
  const ModuleOwners found(*impl_, *impl_->modules);
  std::vector<ModuleTotals> all;
  for (const std::string& name : names) {
    ModuleTotals sum{.name = name};
    for (size_t i = 0; i < names.size(); ++i) {
      if (!lies_in(names[i], name)) continue;
      const ModuleTotals& own = found.totals()[i];
      sum.calls += own.calls;
      sum.forward_us += own.forward_us;
      sum.backward_us += own.backward_us;
      sum.forward_device_us += own.forward_device_us;
      sum.backward_device_us += own.backward_device_us;
      sum.flops += own.flops;
    }
    if (sum.calls > 0 || sum.backward_us > 0) all.push_back(std::move(sum));
  }
  return all;
}

std::string ProfileTrace::module_table() const {
  const std::vector<ModuleTotals> rows = modules();
  const bool has_device = std::any_of(rows.begin(), rows.end(), [](const ModuleTotals& row) {
    return row.forward_device_us + row.backward_device_us > 0;
  });
  const bool has_flops =
      std::any_of(rows.begin(), rows.end(), [](const ModuleTotals& row) { return row.flops > 0; });
  std::vector<Align> alignment{Align::kLeft, Align::kRight, Align::kRight, Align::kRight};
  std::vector<std::string> heading{"module", "forward", "backward", "calls"};
  if (has_device) {
    alignment.insert(alignment.end(), 2, Align::kRight);
    heading.insert(heading.end(), {"forward on device", "backward on device"});
  }
  if (has_flops) {
    alignment.push_back(Align::kRight);
    heading.emplace_back("forward FLOPs");
  }
  TextTable table(alignment);
  table.add(std::move(heading));
  for (const ModuleTotals& row : rows) {
    std::vector<std::string> cells{row.name.empty() ? "(all)" : row.name,
                                   profile_time(row.forward_us), profile_time(row.backward_us),
                                   std::to_string(row.calls)};
    if (has_device) {
      cells.push_back(profile_time(row.forward_device_us));
      cells.push_back(profile_time(row.backward_device_us));
    }
    if (has_flops) cells.push_back(profile_flops(row.flops));
    table.add(std::move(cells));
  }
  return table.text();
}

}  // namespace accelerate
