// Which steps are recorded, and the names of activities.
#include <array>
#include <string>
#include <vector>

#include "accelerate/profiler.h"
#include "base/nearest_name.h"
#include "base/word_list.h"

namespace accelerate {
namespace {

constexpr std::array<std::string_view, 5> kActivityNames = {"cpu", "cuda", "xpu", "mtia", "hpu"};

void require_schedule(const ProfileSchedule& schedule) {
  const std::array<std::pair<const char*, int64_t>, 6> numbers = {
      {{"wait", schedule.wait},
       {"warmup", schedule.warmup},
       {"active", schedule.active},
       {"repeat", schedule.repeat},
       {"skip_first", schedule.skip_first},
       {"skip_first_wait", schedule.skip_first_wait}}};
  for (const auto& [name, number] : numbers) {
    if (number >= 0 && (number > 0 || name != std::string_view("active"))) continue;
    throw UsageError({.what = std::string(name) + " is " + std::to_string(number),
                      .where = "ProfileOptions::schedule",
                      .hint = "active is 1 or more, the other numbers 0 or more"});
  }
}

}  // namespace

ProfileActivity::ProfileActivity(std::string_view name) : value_(kCpu) {
  for (size_t i = 0; i < kActivityNames.size(); ++i) {
    if (name != kActivityNames[i]) continue;
    value_ = static_cast<Value>(i);
    return;
  }
  const std::vector<std::string> known(kActivityNames.begin(), kActivityNames.end());
  const std::string near = nearest_name(name, known);
  throw UsageError({.what = "unknown activity \"" + std::string(name) +
                            "\" (known: " + joined(kActivityNames) + ")",
                    .where = "ProfileOptions::activities",
                    .hint = near.empty() ? "leave it out for the CPU and the accelerator's device"
                                         : "did you mean \"" + near + "\"?"});
}

std::string_view ProfileActivity::name() const {
  return kActivityNames[static_cast<size_t>(value_)];
}

ProfileAction action_at(const ProfileSchedule& schedule, int64_t step) {
  require_schedule(schedule);
  if (step < schedule.skip_first) return ProfileAction::kNone;
  const int64_t cycle = schedule.wait + schedule.warmup + schedule.active;
  int64_t place = step - schedule.skip_first;  // among the steps of all cycles
  if (schedule.skip_first_wait > 0) place += schedule.wait;
  if (schedule.repeat > 0 && place / cycle >= schedule.repeat) return ProfileAction::kNone;
  place %= cycle;
  if (place < schedule.wait) return ProfileAction::kNone;
  if (place < schedule.wait + schedule.warmup) return ProfileAction::kWarmup;
  return place + 1 < cycle ? ProfileAction::kRecord : ProfileAction::kRecordAndSave;
}

}  // namespace accelerate
