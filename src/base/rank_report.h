// What a rank says when somebody outside of its job asks what it is doing. Standard headers only:
// the library writes it, the program `accelerate` reads it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accelerate {

struct RankReport {
  using Age = std::chrono::milliseconds;  // how long ago something was, as of the report

  // Something that this rank waits for, or is in.
  struct Activity {
    Age age{};
    std::string text{};
    std::string group{};   // of ranks; "" for none
    int64_t sequence = 0;  // of the collective in its group; 0: of none
  };
  // What it did last in a group of ranks.
  struct Group {
    std::string name{};
    std::string among{};   // " among ranks 0 and 2"; "" for all
    int64_t sequence = 0;  // of its latest collective; 0: none yet
    bool finished = true;
    Age age{};  // of its end where that is known, else of its begin
    std::string operation{};
  };
  // One entry of its log.
  struct Entry {
    Age age{};
    std::string what{};  // "begins", "ends", "waits", ...
    std::string group{};
    int64_t number = 0;
    std::string text{};
  };

  std::string host{};
  int64_t pid = 0;
  int64_t steps = 0;  // of optimizers, as far back as the log goes; see `step_age`
  std::optional<Age> step_age{};
  Age waited{};                    // for other ranks, in all, since the log begins
  Age log_time{};                  // since the log begins
  std::vector<Activity> waits{};   // the oldest first
  std::vector<Activity> inside{};  // what the user called, checkpoints; the oldest first
  std::vector<Group> groups{};
  std::vector<Entry> log{};  // the oldest first

  std::string encode() const;
  // What of `text` can be read; fields that are missing stay empty. Never throws: it comes from
  // another machine.
  static RankReport decode(const std::string& text);
};

// "  12.345 s  all #17 begins barrier", a line for each of the last `most` entries, the oldest
// first.
std::string log_text(const RankReport& report, size_t most);

// "12.3 s", "4 min 10 s".
std::string waited_text(RankReport::Age age);

}  // namespace accelerate
