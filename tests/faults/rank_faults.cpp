// Lets every system call of every rank go wrong in turn while they save, and has the result
// checked.
//
//   rank_faults SCENARIO RANKS ACTIONS [EVERY]
//
// SCENARIO: see rank_scenario.h. ACTIONS: those of fault_plan.h, separated by commas. EVERY: take
// every n-th case alone. This process has libtorch loaded and never runs any of it; each case is a
// fork that costs what its ranks do, a few of them at a time.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "accelerate/errors.h"
#include "fault_control.h"
#include "rank_processes.h"
#include "rank_scenario.h"

namespace {

using faults::Outcome;
using faults::RankEnd;
using faults::Scenario;
using std::chrono::seconds;
using std::chrono::steady_clock;
using std::filesystem::path;

constexpr int kCheckpointErrorCode = 3;
constexpr int kOtherErrorCode = 5;
constexpr seconds kRankDeadline{40};
constexpr seconds kCaseDeadline{120};
constexpr const char* kSaved = "saved\n";

const std::set<std::string> kDeadly{"kill",          "torn",           "powercut",
                                    "powercut-data", "powercut-files", "powercut-folders"};
const std::set<std::string> kHarmless{"short", "EINTR"};
const std::set<std::string> kOfWrites{"short", "torn"};

struct Case {
  int rank = 0;
  int number = 0;  // of the call
  std::string action;

  std::string name() const {
    return std::to_string(rank) + "-" + std::to_string(number) + "-" + action;
  }
};

// What a case tells this process by its exit code.
enum class Verdict { kSaved = 10, kFailed, kUntidy, kKilled, kNotReached, kBroken };

// Whatever a rank throws, as its exit code.
int exit_code_of(const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const accelerate::CheckpointError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kCheckpointErrorCode;
  } catch (const accelerate::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kOtherErrorCode;
  }
}

std::vector<std::string> lines_of(const path& file) {
  std::istringstream text(faults::contents_of(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

class Trials {
 public:
  Trials(std::string scenario, int world_size, path scratch)
      : scenario_(faults::make_scenario(scenario)),
        world_size_(world_size),
        scratch_(std::move(scratch)) {}

  // Fills the folder that every case begins with. Throws if that fails.
  void prepare() const {
    std::filesystem::create_directory(scratch_ / "before");
    for (const RankEnd& end :
         run(scratch_ / "prepare", [&] { scenario_->prepare(scratch_ / "before"); })) {
      faults::require(end.exit_code() == 0, "the folder cannot be filled: " + end.output);
    }
  }

  // The calls of a save without faults: "rename /path", by rank.
  std::map<int, std::vector<std::string>> count() const {
    const Case none{.action = "none"};
    const auto ends = save(none);
    for (const RankEnd& end : ends) {
      faults::require(end.exit_code() == 0, "the save fails without faults: " + end.output);
    }
    std::map<int, std::vector<std::string>> calls;
    for (const std::string& line : lines_of(log_of(none))) {
      std::istringstream words(line);
      int rank = 0, number = 0;
      std::string call, where;
      words >> rank >> number >> call >> where;
      calls[rank].push_back(call + " " + where);
    }
    scenario_->check(folder_of(none), {.saved = true});
    faults::require(!calls.empty(), "no call was seen: is the interposer in front of the libc?");
    return calls;
  }

  // To be run in a process of its own. What is wrong goes to the file of that case.
  Verdict run_case(const Case& one) const {
    const auto ends = save(one);
    std::string hit;
    const std::string mark = std::to_string(one.rank) + " " + std::to_string(one.number) + " ";
    for (const std::string& line : lines_of(log_of(one))) {
      if (line.starts_with(mark)) hit = line.substr(mark.size());
    }
    try {
      const Outcome outcome = outcome_of(one, ends, hit);
      if (hit.empty()) return Verdict::kNotReached;
      scenario_->check(folder_of(one), outcome);
      remove_files(one);
      if (outcome.kind == Outcome::Kind::kKilled) return Verdict::kKilled;
      if (outcome.kind == Outcome::Kind::kFailed) return Verdict::kFailed;
      return outcome.untidy ? Verdict::kUntidy : Verdict::kSaved;
    } catch (const std::exception& error) {
      std::ofstream file(problem_of(one));
      file << error.what() << "\n  call: " << hit << "\n";
      for (const RankEnd& end : ends) file << "  a rank said: " << end.output;
      return Verdict::kBroken;
    }
  }

  path problem_of(const Case& one) const { return scratch_ / (one.name() + ".problem"); }

 private:
  path folder_of(const Case& one) const { return scratch_ / one.name(); }
  path log_of(const Case& one) const { return scratch_ / (one.name() + ".log"); }
  path graves_of(const Case& one) const { return scratch_ / (one.name() + ".graves"); }

  void remove_files(const Case& one) const {
    std::filesystem::remove_all(folder_of(one));
    std::filesystem::remove_all(graves_of(one));
    std::filesystem::remove(log_of(one));
    for (int rank = 0; rank < world_size_; ++rank) {
      std::filesystem::remove(folder_of(one).string() + ".out." + std::to_string(rank));
    }
  }

  std::vector<RankEnd> run(const path& output, const std::function<void()>& body) const {
    return faults::run_ranks(world_size_, scenario_->nodes(), output, kRankDeadline,
                             [&](int) { return exit_code_of(body); });
  }

  std::vector<RankEnd> save(const Case& one) const {
    const path folder = folder_of(one);
    std::filesystem::copy(scratch_ / "before", folder, std::filesystem::copy_options::recursive);
    std::filesystem::create_directory(graves_of(one));
    const auto arm = [&] {
      setenv("FAULTS_FOLDER", folder.c_str(), 1);
      setenv("FAULTS_LOG", log_of(one).c_str(), 1);
      setenv("FAULTS_GRAVES", graves_of(one).c_str(), 1);
      if (one.number > 0) {
        setenv("FAULTS_RANK", std::to_string(one.rank).c_str(), 1);
        setenv("FAULTS_AT", std::to_string(one.number).c_str(), 1);
        setenv("FAULTS_ACTION", one.action.c_str(), 1);
      }
      faults_reload();
    };
    return run(folder.string() + ".out", [&] {
      scenario_->save(folder, arm);
      std::fputs(kSaved, stdout);
      std::fflush(stdout);
    });
  }

  static Outcome outcome_of(const Case& one, const std::vector<RankEnd>& ends,
                            const std::string& hit) {
    Outcome outcome{.untidy = one.action == "dead", .hit = hit};
    outcome.saved = ends[0].output.find(kSaved) != std::string::npos;
    std::set<int> codes;
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      const RankEnd& end = ends[rank];
      const std::string who = "rank " + std::to_string(rank);
      faults::require(!end.hung, who + " did not end");
      const bool to_be_killed =
          kDeadly.contains(one.action) && !hit.empty() && static_cast<int>(rank) == one.rank;
      faults::require(end.was_killed() == to_be_killed,
                      who + " ended in another way than it had to");
      if (!to_be_killed) codes.insert(end.exit_code());
      outcome.untidy = outcome.untidy || end.output.find("warning:") != std::string::npos;
    }
    if (kDeadly.contains(one.action) && !hit.empty()) {
      outcome.kind = Outcome::Kind::kKilled;
      const auto is_known = [](int code) {
        return code == 0 || code == kCheckpointErrorCode || code == kOtherErrorCode;
      };
      faults::require(std::ranges::all_of(codes, is_known), "a rank that was left has crashed");
      return outcome;
    }
    faults::require(codes.size() == 1, "the ranks do not agree on how the save ended");
    const int code = *codes.begin();
    faults::require(code == 0 || code == kCheckpointErrorCode,
                    "the save ended with " + std::to_string(code));
    faults::require(code == 0 || !kHarmless.contains(one.action), "the save should have gone on");
    outcome.kind = code == 0 ? Outcome::Kind::kSaved : Outcome::Kind::kFailed;
    return outcome;
  }

  std::unique_ptr<Scenario> scenario_;
  int world_size_;
  path scratch_;
};

// Runs the cases in processes of their own, `jobs` at a time.
std::map<Verdict, std::vector<Case>> run_all(const Trials& trials, const std::vector<Case>& cases,
                                             size_t jobs) {
  struct Running {
    Case one;
    steady_clock::time_point end;
  };
  std::map<int, Running> running;
  std::map<Verdict, std::vector<Case>> results;
  size_t next = 0;
  while (next < cases.size() || !running.empty()) {
    if (next < cases.size() && running.size() < jobs) {
      const Case one = cases[next++];
      const int process =
          faults::fork_process([&] { return static_cast<int>(trials.run_case(one)); });
      running.emplace(process, Running{one, steady_clock::now() + kCaseDeadline});
      continue;
    }
    std::erase_if(running, [&](const auto& entry) {
      const auto& [process, state] = entry;
      if (steady_clock::now() > state.end) kill(process, SIGKILL);
      int status = 0;
      if (waitpid(process, &status, WNOHANG) == 0) return false;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      const bool is_known =
          code >= static_cast<int>(Verdict::kSaved) && code <= static_cast<int>(Verdict::kBroken);
      if (!is_known) std::ofstream(trials.problem_of(state.one)) << "the check crashed or hung\n";
      results[is_known ? static_cast<Verdict>(code) : Verdict::kBroken].push_back(state.one);
      return true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return results;
}

std::vector<Case> cases_of(const std::map<int, std::vector<std::string>>& calls,
                           const std::string& actions, size_t every) {
  std::vector<Case> cases;
  std::istringstream words(actions);
  for (std::string action; std::getline(words, action, ',');) {
    for (const auto& [rank, names] : calls) {
      for (size_t i = 0; i < names.size(); ++i) {
        const bool is_write = names[i].starts_with("write") || names[i].starts_with("pwrite");
        if (kOfWrites.contains(action) && !is_write) continue;
        cases.push_back({.rank = rank, .number = static_cast<int>(i) + 1, .action = action});
      }
    }
  }
  std::vector<Case> taken;
  for (size_t i = 0; i < cases.size(); i += every) taken.push_back(cases[i]);
  return taken;
}

path make_scratch() {
  const char* base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  std::string pattern = std::string(base) + "/rank-faults-XXXXXX";
  return mkdtemp(pattern.data());
}

int run(const std::string& scenario, int world_size, const std::string& actions, size_t every) {
  const path scratch = make_scratch();
  const Trials trials(scenario, world_size, scratch);
  trials.prepare();
  // Counting checks a folder with libtorch: not in this process.
  const path counted = scratch / "calls";
  const int counter = faults::fork_process([&] {
    std::ofstream file(counted);
    for (const auto& [rank, names] : trials.count()) {
      for (const std::string& name : names) file << rank << " " << name << "\n";
    }
    return 0;
  });
  int status = 0;
  waitpid(counter, &status, 0);
  faults::require(status == 0, "the calls could not be counted; see " + scratch.string());
  std::map<int, std::vector<std::string>> calls;
  for (const std::string& line : lines_of(counted)) {
    calls[std::stoi(line)].push_back(line.substr(line.find(' ') + 1));
  }
  for (const auto& [rank, names] : calls) {
    std::printf("rank %d: %zu calls\n", rank, names.size());
  }
  std::fflush(stdout);  // or each process that is forked prints it again

  const std::vector<Case> cases = cases_of(calls, actions, every);
  // Ranks wait for each other some of the time, and for one that was killed a little longer.
  const size_t jobs = 2 * std::max(1U, std::thread::hardware_concurrency());
  auto results = run_all(trials, cases, jobs);
  const std::map<Verdict, const char*> names{
      {Verdict::kSaved, "saved"},   {Verdict::kFailed, "failed"},
      {Verdict::kUntidy, "untidy"}, {Verdict::kKilled, "killed"},
      {Verdict::kBroken, "broken"}, {Verdict::kNotReached, "not reached"}};
  for (const auto& [verdict, of_it] : results) {
    std::printf("%zu %s\n", of_it.size(), names.at(verdict));
  }
  const std::vector<Case>& broken = results[Verdict::kBroken];
  for (size_t i = 0; i < broken.size() && i < 20; ++i) {
    std::printf("\nrank %d, call %d, %s: %s", broken[i].rank, broken[i].number,
                broken[i].action.c_str(),
                faults::contents_of(trials.problem_of(broken[i])).c_str());
  }
  if (!broken.empty()) {
    std::printf("\n%zu of %zu cases broke a promise; their folders are in %s\n", broken.size(),
                cases.size(), scratch.c_str());
    return 1;
  }
  // A save makes the same calls each time, so each case must meet its call.
  const std::vector<Case>& unreached = results[Verdict::kNotReached];
  for (const Case& one : unreached) {
    std::printf("rank %d, call %d, %s: not reached\n", one.rank, one.number, one.action.c_str());
  }
  if (!unreached.empty() || cases.empty()) {
    std::printf("%zu of %zu cases were not reached: the save does not repeat itself\n",
                unreached.size(), cases.size());
    return 1;
  }
  std::filesystem::remove_all(scratch);
  std::printf("all %zu cases kept every promise\n", cases.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  setenv("OMP_NUM_THREADS", "1", 1);
  // c10d looks up the names of the peers that connect; a name server that does not answer would
  // cost each case seconds, so none is asked.
  setenv("RES_OPTIONS", "timeout:1 attempts:0", 1);
  try {
    return run(argv[1], std::stoi(argv[2]), argv[3],
               argc > 4 ? static_cast<size_t>(std::stoul(argv[4])) : 1);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
