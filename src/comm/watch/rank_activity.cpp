#include "comm/watch/rank_activity.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/host_name.h"
#include "comm/watch/rank_record.h"

namespace accelerate::comm {
namespace {

using GroupNames = std::map<uint16_t, std::string>;

RankReport::Age age_of(int64_t time_ns, int64_t now_ns) {
  return std::chrono::duration_cast<RankReport::Age>(
      std::chrono::nanoseconds(std::max<int64_t>(now_ns - time_ns, 0)));
}

const char* word_for(EventKind kind) {
  switch (kind) {
    case EventKind::kStep:
      return "step of an optimizer";
    case EventKind::kSpanBegin:
      return "enters";
    case EventKind::kSpanEnd:
      return "leaves";
    case EventKind::kWaitBegin:
      return "waits in";
    case EventKind::kWaitEnd:
      return "waited";
    case EventKind::kCollectiveBegin:
      return "begins";
    case EventKind::kCollectiveEnd:
      return "ends";
    case EventKind::kCheckpointBegin:
      return "begins checkpoint";
    case EventKind::kCheckpointEnd:
      return "ends checkpoint";
    case EventKind::kGroupOpened:
      return "opens";
  }
  return "?";
}

bool is_numbered(EventKind kind) {
  return kind == EventKind::kStep || kind == EventKind::kWaitBegin || kind == EventKind::kWaitEnd ||
         kind == EventKind::kCollectiveBegin || kind == EventKind::kCollectiveEnd;
}

bool is_of_a_group(EventKind kind) {
  return kind != EventKind::kStep && kind != EventKind::kCheckpointBegin &&
         kind != EventKind::kCheckpointEnd && kind != EventKind::kGroupOpened;
}

std::string name_in(const GroupNames& names, const Event& event) {
  if (!is_of_a_group(event.kind)) return "";
  const auto found = names.find(event.group);
  return found == names.end() ? "" : found->second;
}

RankReport::Activity activity_from(const Event& event, const GroupNames& names, int64_t now_ns) {
  return {.age = age_of(event.time_ns, now_ns),
          .text = std::string(event.text()),
          .group = name_in(names, event),
          .sequence = event.kind == EventKind::kWaitBegin ? event.number : 0};
}

// How long there was at least one wait for others in `log`, up to now.
int64_t time_waited(const std::vector<Event>& log, int64_t now_ns) {
  int64_t waited = 0;
  int64_t since = 0;
  int open = 0;
  for (const Event& event : log) {
    if (event.kind == EventKind::kWaitBegin && open++ == 0) since = event.time_ns;
    // The begin of a wait may be older than the log.
    const bool ends = event.kind == EventKind::kWaitEnd && open > 0;
    if (ends && --open == 0) waited += event.time_ns - since;
  }
  return open > 0 ? waited + now_ns - since : waited;
}

// When the latest collective of `group` ended, where the log still holds that.
int64_t end_time(const std::vector<Event>& log, uint16_t group, int64_t sequence) {
  for (auto event = log.rbegin(); event != log.rend(); ++event) {
    if (event->kind == EventKind::kCollectiveEnd && event->group == group &&
        event->number == sequence) {
      return event->time_ns;
    }
  }
  return 0;
}

}  // namespace

RankReport report_of(const GroupList& groups, const EventStream& events, int world_size,
                     size_t most) {
  const std::vector<Event> log = events.last_events(EventStream::kCapacity);
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  RankReport report;
  report.host = host_name();
  report.pid = getpid();
  if (!log.empty()) {
    report.waited = age_of(now - time_waited(log, now), now);
    report.log_time = age_of(log.front().time_ns, now);
  }
  GroupNames names;
  for (const auto& group : groups.all()) {
    names[group->log->group()] = group->name;
    const CollectiveRecord latest = group->log->latest();
    const int64_t ended = latest.finished ? end_time(log, group->log->group(), latest.sequence) : 0;
    report.groups.push_back({.name = group->name,
                             .among = among(*group, world_size),
                             .sequence = latest.sequence,
                             .finished = latest.finished,
                             .age = age_of(ended != 0 ? ended : latest.begun_ns, now),
                             .operation = latest.operation});
  }
  for (const Event& event : events.board()) {
    if (event.kind == EventKind::kWaitBegin) {
      report.waits.push_back(activity_from(event, names, now));
    } else if (event.kind == EventKind::kSpanBegin || event.kind == EventKind::kCheckpointBegin) {
      report.inside.push_back(activity_from(event, names, now));
    }
  }
  for (const Event& event : log) {
    if (event.kind != EventKind::kStep) continue;
    report.steps = event.number;
    report.step_age = age_of(event.time_ns, now);
  }
  const size_t first = log.size() > most ? log.size() - most : 0;
  for (size_t i = first; i < log.size(); ++i) {
    const Event& event = log[i];
    report.log.push_back({.age = age_of(event.time_ns, now),
                          .what = word_for(event.kind),
                          .group = name_in(names, event),
                          .number = is_numbered(event.kind) ? event.number : 0,
                          .text = std::string(event.text())});
  }
  return report;
}

}  // namespace accelerate::comm
