#include "cli/reports/status_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/word_list.h"
#include "cli/reports/text_table.h"

namespace accelerate::cli {
namespace {

using launch::GroupAnswer;
using launch::RankAnswer;
using Json = nlohmann::ordered_json;

constexpr const char* kGroupOfAllRanks = "all";

std::string numbered_ranks(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + listed(ranks);
}

// "#17", "#3 of all/1.0"
std::string place_text(int64_t sequence, const std::string& group) {
  if (sequence == 0) return "";
  const bool is_all = group.empty() || group == kGroupOfAllRanks;
  return ", #" + std::to_string(sequence) + (is_all ? "" : " of " + group);
}

std::string steps_text(const RankReport& report) {
  if (!report.step_age) return "";
  return "; step " + std::to_string(report.steps) + " was " + waited_text(*report.step_age) +
         " ago";
}

std::string doing_text(const RankReport& report) {
  if (!report.waits.empty()) {
    const auto& wait = report.waits.front();
    return "waits for " + waited_text(wait.age) + " in " + wait.text +
           place_text(wait.sequence, wait.group);
  }
  if (!report.inside.empty()) {
    const auto& span = report.inside.front();
    return "is in " + span.text + " for " + waited_text(span.age) + steps_text(report);
  }
  if (report.groups.empty() || report.groups.front().sequence == 0) {
    return "has done no collective yet" + steps_text(report);
  }
  const auto& last = report.groups.front();
  const std::string what = last.operation + place_text(last.sequence, last.name);
  if (!last.finished) return "is in " + what + " for " + waited_text(last.age) + steps_text(report);
  return "computes; its last was " + what + ", " + waited_text(last.age) + " ago" +
         steps_text(report);
}

std::string silence_text(const JobStatus& job, int rank) {
  const auto pid = job.pids.find(rank);
  if (pid == job.pids.end()) return "does not answer: stopped, unreachable or gone";
  switch (launch::process_state(pid->second)) {
    case 'T':
    case 't':
      return "does not answer: its process is stopped";
    case '\0':
    case 'Z':
      return "does not answer: its process has ended";
    default:
      return "does not answer";
  }
}

// Ranks that wait for others in the group of all ranks, and those that they wait for.
struct MissingRanks {
  std::string operation{};
  int64_t sequence = 0;
  std::vector<int> waiting{};
  std::vector<int> missing{};
};

// Those that have not come to the first collective that somebody waits in: some may have left it
// already, and wait in the next for ranks that are stuck in this one.
MissingRanks missing_ranks(const GroupAnswer& group) {
  MissingRanks found;
  std::vector<int> others;
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    bool waits = false;
    if (const auto& report = group.ranks[i].report) {
      for (const auto& wait : report->waits) {
        if (wait.group != kGroupOfAllRanks || wait.sequence == 0) continue;
        waits = true;
        if (found.sequence != 0 && wait.sequence >= found.sequence) continue;
        found.sequence = wait.sequence;
        found.operation = wait.text;
      }
    }
    (waits ? found.waiting : others).push_back(static_cast<int>(i));
  }
  for (const int rank : others) {
    int64_t reached = 0;
    if (const auto& report = group.ranks[static_cast<size_t>(rank)].report) {
      for (const auto& of_rank : report->groups) {
        if (of_rank.name == kGroupOfAllRanks) reached = of_rank.sequence;
      }
    }
    if (reached < found.sequence) found.missing.push_back(rank);
  }
  return found;
}

// Of the time that its log covers; -1: too short to say.
int share_of_waits(const RankReport& report) {
  constexpr RankReport::Age kShortest{500};
  if (report.log_time < kShortest) return -1;
  return static_cast<int>(100 * report.waited.count() / report.log_time.count());
}

std::string share_text(const RankReport& report) {
  const int share = share_of_waits(report);
  return share < 0 ? "?" : std::to_string(share) + " %";
}

// A rank that hardly waits while all others wait for much of their time is the one that they wait
// for; "" if there is none.
std::string straggler_text(const GroupAnswer& group) {
  constexpr int kMuch = 30;
  int slow = -1;
  int share_of_slow = 100;
  int least_of_others = 100;
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    const auto& report = group.ranks[i].report;
    const int share = report ? share_of_waits(*report) : -1;
    if (share < 0) return "";
    if (share < share_of_slow) {
      least_of_others = std::min(least_of_others, share_of_slow);
      share_of_slow = share;
      slow = static_cast<int>(i);
    } else {
      least_of_others = std::min(least_of_others, share);
    }
  }
  const bool is_clear =
      group.ranks.size() > 1 && least_of_others >= kMuch && 2 * share_of_slow <= least_of_others;
  if (!is_clear) return "";
  return "  rank " + std::to_string(slow) + " is slower than the others: it waits for " +
         std::to_string(share_of_slow) + " % of its time, each of them for " +
         std::to_string(least_of_others) + " % or more\n";
}

std::string log_of_ranks(const GroupAnswer& group, size_t log_entries) {
  std::string text;
  for (size_t rank = 0; rank < group.ranks.size(); ++rank) {
    const auto& report = group.ranks[rank].report;
    if (!report) continue;
    text += "  last entries of rank " + std::to_string(rank) + ", by their age:\n" +
            log_text(*report, log_entries);
  }
  return text;
}

std::string group_text(const JobStatus& job, const GroupAnswer& group, size_t log_entries) {
  if (!group.ended.empty()) return "  nobody was asked: " + group.ended + "\n";
  TextTable table({Align::kRight, Align::kLeft, Align::kRight, Align::kRight, Align::kLeft}, 2);
  table.add({"rank", "machine", "pid", "waits", "does"});
  for (size_t rank = 0; rank < group.ranks.size(); ++rank) {
    const RankAnswer& answer = group.ranks[rank];
    const auto pid = job.pids.find(static_cast<int>(rank));
    const std::string own_pid = pid == job.pids.end() ? "?" : std::to_string(pid->second);
    if (answer.report) {
      table.add({std::to_string(rank), answer.report->host, std::to_string(answer.report->pid),
                 share_text(*answer.report), doing_text(*answer.report)});
    } else if (answer.has_left) {
      table.add({std::to_string(rank), "?", own_pid, "", "has left: its accelerator ended"});
    } else {
      table.add(
          {std::to_string(rank), "?", own_pid, "", silence_text(job, static_cast<int>(rank))});
    }
  }
  std::string text = table.text();
  const MissingRanks found = missing_ranks(group);
  if (!found.waiting.empty() && !found.missing.empty()) {
    text += "  " + numbered_ranks(found.waiting) +
            (found.waiting.size() == 1 ? " waits for " : " wait for ") +
            numbered_ranks(found.missing) + " to come to #" + std::to_string(found.sequence) +
            ", " + found.operation + "\n";
  }
  if (found.missing.empty()) text += straggler_text(group);
  return log_entries == 0 ? text : text + log_of_ranks(group, log_entries);
}

// Groups that have ended are of interest only where there is no other.
std::vector<const GroupAnswer*> groups_to_show(const launch::JobAnswer& answer) {
  std::vector<const GroupAnswer*> shown;
  for (const GroupAnswer& group : answer.groups) {
    if (group.ended.empty()) shown.push_back(&group);
  }
  if (shown.empty() && !answer.groups.empty()) shown.push_back(&answer.groups.back());
  return shown;
}

double seconds_of(RankReport::Age age) { return static_cast<double>(age.count()) / 1000.0; }

Json activities_json(const std::vector<RankReport::Activity>& activities) {
  Json list = Json::array();
  for (const auto& each : activities) {
    list.push_back({{"what", each.text},
                    {"seconds", seconds_of(each.age)},
                    {"group", each.group},
                    {"sequence", each.sequence}});
  }
  return list;
}

Json rank_json(const RankAnswer& answer, int rank, size_t log_entries) {
  Json json = {{"rank", rank}, {"answered", answer.report.has_value()}, {"left", answer.has_left}};
  if (!answer.report) return json;
  const RankReport& report = *answer.report;
  json["host"] = report.host;
  json["pid"] = report.pid;
  json["waited_seconds"] = seconds_of(report.waited);
  json["log_seconds"] = seconds_of(report.log_time);
  json["steps"] = report.step_age ? Json(report.steps) : Json(nullptr);
  json["waits"] = activities_json(report.waits);
  json["inside"] = activities_json(report.inside);
  json["groups"] = Json::array();
  for (const auto& group : report.groups) {
    json["groups"].push_back({{"name", group.name},
                              {"sequence", group.sequence},
                              {"operation", group.operation},
                              {"finished", group.finished},
                              {"seconds", seconds_of(group.age)}});
  }
  json["log"] = Json::array();
  const size_t first = report.log.size() > log_entries ? report.log.size() - log_entries : 0;
  for (size_t i = first; i < report.log.size(); ++i) {
    const auto& entry = report.log[i];
    json["log"].push_back({{"seconds", seconds_of(entry.age)},
                           {"group", entry.group},
                           {"number", entry.number},
                           {"what", entry.what},
                           {"text", entry.text}});
  }
  return json;
}

Json group_json(const GroupAnswer& group, size_t log_entries) {
  const MissingRanks found = missing_ranks(group);
  Json json = {{"ended", group.ended},
               {"waiting", found.waiting},
               {"missing", found.sequence == 0 ? std::vector<int>() : found.missing},
               {"ranks", Json::array()}};
  for (size_t rank = 0; rank < group.ranks.size(); ++rank) {
    json["ranks"].push_back(rank_json(group.ranks[rank], static_cast<int>(rank), log_entries));
  }
  return json;
}

}  // namespace

bool has_full_answer(const JobStatus& job) {
  if (!job.problem.empty()) return false;
  for (const GroupAnswer* group : groups_to_show(job.answer)) {
    if (!group->ended.empty()) return false;
    for (const RankAnswer& rank : group->ranks) {
      if (!rank.report && !rank.has_left) return false;
    }
  }
  return true;
}

std::string status_text(const std::vector<JobStatus>& jobs, size_t log_entries) {
  std::string text;
  for (const JobStatus& job : jobs) {
    if (!text.empty()) text += '\n';
    const std::string name = job.answer.job.empty() ? "" : " " + job.answer.job;
    text += "job" + name + " at " + job.store.text();
    if (!job.problem.empty()) {
      text += ": " + job.problem + "\n";
      for (const auto& [rank, pid] : job.pids) {
        const char state = launch::process_state(pid);
        text += "  rank " + std::to_string(rank) + " is process " + std::to_string(pid) +
                (state == 'T' ? ", which is stopped" : "") + "\n";
      }
      continue;
    }
    text += ": " + std::to_string(job.answer.world_size) + " ranks\n";
    for (const GroupAnswer* group : groups_to_show(job.answer)) {
      text += group_text(job, *group, log_entries);
    }
  }
  return text;
}

std::string status_json(const std::vector<JobStatus>& jobs, size_t log_entries) {
  Json all = Json::array();
  for (const JobStatus& job : jobs) {
    Json json = {{"store", job.store.text()}, {"job", job.answer.job}, {"problem", job.problem}};
    json["world_size"] = job.answer.world_size;
    json["groups"] = Json::array();
    if (job.problem.empty()) {
      for (const GroupAnswer* group : groups_to_show(job.answer)) {
        json["groups"].push_back(group_json(*group, log_entries));
      }
    }
    all.push_back(std::move(json));
  }
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace accelerate::cli
