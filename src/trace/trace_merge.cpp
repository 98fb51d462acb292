#include "trace/trace_merge.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "accelerate/profiler.h"
#include "files/durable/replace_file.h"
#include "trace/clock_offsets.h"
#include "trace/trace_additions.h"
#include "trace/trace_reader.h"

namespace accelerate::trace {
namespace {

using nlohmann::json;

constexpr std::string_view kStem = "profile_";
constexpr std::string_view kEnding = ".json";
constexpr const char* kMergedName = "profile_merged.json";
constexpr int64_t kProcessesOfRank = 1000;
constexpr int64_t kFlowsOfRank = int64_t{1} << 32;

// What the first reading of a trace finds out.
struct TraceFacts {
  std::filesystem::path path;
  int rank = 0;
  int64_t world_size = 0;  // 0 where the file does not say
  std::string host;
  int64_t base_ns = 0;  // to which its times are relative
  RankMeetings meetings;
  // Of kernels that exchange: when each of one kind ended, in order.
  std::map<std::string, std::vector<double>> kernels;
};

std::string text_in(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<double> number_in(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string key_of(const json& arguments, const char* name) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? "" : found->dump();
}

// In these a rank may leave before the others have come.
bool leaves_early(std::string_view name) {
  return name.find("broadcast") != name.npos || name.find("scatter from") != name.npos;
}

void note_meeting(const json& event, TraceFacts& facts) {
  const auto begin = number_in(event, "ts");
  const auto duration = number_in(event, "dur");
  const auto arguments = event.find("args");
  if (!begin || !duration || arguments == event.end() || !arguments->is_object()) return;
  const double end = *begin + *duration;
  const std::string name = text_in(event, "name");
  const std::string category = text_in(event, "cat");
  // Numbers of groups other than that of all ranks are not the same on all of them.
  const bool is_of_all = number_in(*arguments, "group") == 0.0;
  if (category == kExchangeCategory && is_of_all && !leaves_early(name)) {
    facts.meetings.ends.try_emplace(
        key_of(*arguments, "exchange") + '/' + key_of(*arguments, "operation"), end);
  }
  if (category == "kernel" && name.starts_with("nccl") && arguments->contains("Collective name")) {
    const std::string kind = text_in(*arguments, "Collective name");
    if (leaves_early(kind) || kind == "send" || kind == "recv") return;
    facts
        .kernels[kind + '/' + key_of(*arguments, "Process Group Name") + '/' +
                 key_of(*arguments, "In msg nelems")]
        .push_back(end);
  }
}

void note_value(const std::string& key, const json& value, TraceFacts& facts) {
  if (key == "baseTimeNanoseconds" && value.is_number()) facts.base_ns = value.get<int64_t>();
  if (!value.is_object()) return;
  if (key == "distributedInfo") {
    if (const auto rank = number_in(value, "rank")) facts.rank = static_cast<int>(*rank);
    if (const auto ranks = number_in(value, "world_size")) {
      facts.world_size = static_cast<int64_t>(*ranks);
    }
  }
  if (key == "accelerate") facts.host = text_in(value, "host");
}

TraceFacts facts_of(const std::filesystem::path& path, int rank_by_name) {
  TraceFacts facts;
  facts.path = path;
  facts.rank = rank_by_name;
  read_trace(path, {.event = [&](json& event) { note_meeting(event, facts); },
                    .value = [&](const std::string& key,
                                 const json& value) { note_value(key, value, facts); }});
  return facts;
}

// Kernels have no number. Where all ranks saw as many of a kind, they are the same ones.
void match_kernels(std::vector<TraceFacts>& traces) {
  std::map<std::string, std::optional<size_t>> counts;  // nothing where they differ
  for (const TraceFacts& trace : traces) {
    for (const auto& [kind, ends] : trace.kernels) {
      const auto [known, is_new] = counts.try_emplace(kind, ends.size());
      if (!is_new && known->second != ends.size()) known->second.reset();
    }
  }
  for (TraceFacts& trace : traces) {
    for (auto& [kind, ends] : trace.kernels) {
      if (!counts[kind]) continue;
      std::sort(ends.begin(), ends.end());
      for (size_t i = 0; i < ends.size(); ++i) {
        trace.meetings.ends.try_emplace(kind + '#' + std::to_string(i), ends[i]);
      }
    }
  }
}

// Changes the events of a rank for their place among those of others.
class RankEvents {
 public:
  RankEvents(const TraceFacts& facts, double shift_us) : facts_(facts), shift_us_(shift_us) {}

  void change(json& event) {
    const std::string phase = text_in(event, "ph");
    if (const auto time = number_in(event, "ts"); time && phase != "M") {
      event["ts"] = *time + shift_us_;
    }
    int64_t process = 0;
    if (const auto pid = event.find("pid"); pid != event.end()) {
      process = number_of(pid->dump());
      *pid = process;
    }
    if (const auto id = event.find("id"); id != event.end() && id->is_number_integer()) {
      *id = facts_.rank * kFlowsOfRank + id->get<int64_t>() % kFlowsOfRank;
    }
    if (phase == "M" && event.contains("args") && event["args"].is_object()) {
      rename(text_in(event, "name"), process, event["args"]);
    }
  }

 private:
  int64_t number_of(const std::string& process) {
    const auto next = static_cast<int64_t>(processes_.size());
    const int64_t place = processes_.try_emplace(process, next).first->second;
    return (facts_.rank + 1) * kProcessesOfRank + place;
  }

  void rename(const std::string& what, int64_t process, json& arguments) const {
    if (what == "process_name") {
      arguments["name"] = "rank " + std::to_string(facts_.rank) + ": " + text_in(arguments, "name");
    }
    if (what == "process_sort_index") arguments["sort_index"] = process;
  }

  const TraceFacts& facts_;
  const double shift_us_;
  std::map<std::string, int64_t> processes_;
};

// Writes in pieces that are worth a system call.
class TextOutput {
 public:
  explicit TextOutput(files::ByteSink& sink) : sink_(sink) {}

  void add(std::string_view text) {
    text_ += text;
    if (text_.size() > kPiece) flush();
  }
  void flush() {
    sink_.write(std::as_bytes(std::span(text_)));
    text_.clear();
  }

 private:
  static constexpr size_t kPiece = size_t{1} << 18;
  files::ByteSink& sink_;
  std::string text_;
};

std::optional<int> rank_in_name(const std::string& name) {
  if (!name.starts_with(kStem) || !name.ends_with(kEnding)) return std::nullopt;
  const char* begin = name.data() + kStem.size();
  const char* end = name.data() + name.size() - kEnding.size();
  int rank = 0;
  const auto [stop, error] = std::from_chars(begin, end, rank);
  if (error != std::errc() || stop != end || rank < 0) return std::nullopt;
  return rank;
}

std::map<int, std::filesystem::path> traces_in(const std::filesystem::path& folder) {
  std::map<int, std::filesystem::path> traces;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (const auto rank = rank_in_name(entry->path().filename().string())) {
      traces[*rank] = entry->path();
    }
  }
  if (error) {
    throw ProfileError({.what = "the folder cannot be read: " + error.message(),
                        .where = folder.string(),
                        .hint = "name the output_trace_dir of a profile"});
  }
  if (traces.empty()) {
    throw ProfileError({.what = "there are no traces",
                        .where = folder.string(),
                        .hint = "name a folder with profile_0.json, profile_1.json and so on: the "
                                "output_trace_dir of a profile"});
  }
  return traces;
}

std::vector<TraceFacts> facts_in(const std::filesystem::path& folder) {
  std::vector<TraceFacts> traces;
  for (const auto& [rank, path] : traces_in(folder)) traces.push_back(facts_of(path, rank));
  for (size_t i = 1; i < traces.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (traces[j].rank != traces[i].rank) continue;
      throw ProfileError({.what = "two traces of rank " + std::to_string(traces[i].rank) + ": " +
                                  traces[j].path.filename().string() + " and " +
                                  traces[i].path.filename().string(),
                          .where = folder.string(),
                          .hint = "keep the traces of one run in a folder of their own"});
    }
  }
  for (const TraceFacts& trace : traces) {
    const int64_t first = traces.front().world_size;
    if (first == 0 || trace.world_size == 0 || trace.world_size == first) continue;
    throw ProfileError(
        {.what = trace.path.filename().string() +
                 " is from a run on another number of ranks than " +
                 traces.front().path.filename().string() + ": " + std::to_string(trace.world_size) +
                 ", not " + std::to_string(first),
         .where = folder.string(),
         .hint = "remove the traces of earlier runs, or give each run a folder of its own"});
  }
  match_kernels(traces);
  for (TraceFacts& trace : traces) {
    trace.meetings.machine = trace.host;
    const double from_first = static_cast<double>(trace.base_ns - traces.front().base_ns) / 1000;
    for (auto& [name, end] : trace.meetings.ends) end += from_first;
  }
  return traces;
}

json head_of(const TraceMerge& merge) {
  json clocks = json::array();
  for (const MergedTrace& trace : merge.ranks) {
    clocks.push_back({{"rank", trace.rank},
                      {"host", trace.host},
                      {"offset_us", trace.offset_us},
                      {"meetings", trace.meetings}});
  }
  return clocks;
}

void write_merged(const std::vector<TraceFacts>& traces, TraceMerge& merge, TextOutput& out) {
  out.add(R"({"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": )" +
          std::to_string(traces.front().base_ns) +
          R"(, "distributedInfo": {"rank": 0, "world_size": )" + std::to_string(traces.size()) +
          R"(}, "accelerate": {"merged": )" + head_of(merge).dump() + "},\n\"traceEvents\": [");
  for (size_t i = 0; i < traces.size(); ++i) {
    const double from_first =
        static_cast<double>(traces[i].base_ns - traces.front().base_ns) / 1000;
    RankEvents events(traces[i], from_first - merge.ranks[i].offset_us);
    read_trace(traces[i].path, {.event = [&](json& event) {
                 events.change(event);
                 out.add(merge.events++ == 0 ? "\n" : ",\n");
                 out.add(event.dump(-1, ' ', false, json::error_handler_t::replace));
               }});
  }
  out.add("\n]}\n");
  out.flush();
}

}  // namespace

std::string trace_name(int rank) {
  return std::string(kStem) + std::to_string(rank) + std::string(kEnding);
}

}  // namespace accelerate::trace

namespace accelerate {

TraceMerge merge_traces(const std::filesystem::path& folder, const std::filesystem::path& output) {
  const std::vector<trace::TraceFacts> traces = trace::facts_in(folder);
  std::vector<trace::RankMeetings> meetings;
  for (const auto& each : traces) meetings.push_back(each.meetings);
  const std::vector<trace::ClockOffset> offsets = trace::clock_offsets(meetings);
  TraceMerge merge{.path = output.empty() ? folder / trace::kMergedName : output};
  for (size_t i = 0; i < traces.size(); ++i) {
    merge.ranks.push_back({.rank = traces[i].rank,
                           .host = traces[i].host,
                           .offset_us = offsets[i].us,
                           .meetings = offsets[i].meetings,
                           .deviation_us = offsets[i].deviation_us});
  }
  try {
    files::replace_file(merge.path, [&](files::ByteSink& sink) {
      trace::TextOutput out(sink);
      trace::write_merged(traces, merge, out);
    });
  } catch (const ProfileError&) {
    throw;
  } catch (const Error& error) {
    throw ProfileError({.what = "the merged trace cannot be written: " + error.message(),
                        .where = merge.path.string(),
                        .hint = error.hint()});
  }
  return merge;
}

}  // namespace accelerate
