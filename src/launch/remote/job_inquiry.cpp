#include "launch/remote/job_inquiry.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <thread>

#include "accelerate/errors.h"
#include "base/inquiry_keys.h"
#include "base/random_id.h"
#include "launch/plan/folder_entries.h"
#include "launch/remote/store_client.h"

namespace accelerate::launch {
namespace {

using Clock = StoreClient::Clock;
using Variables = std::map<std::string, std::string>;

constexpr std::chrono::milliseconds kLookAgain{20};
// After which a question of somebody else is replaced: ranks look twice a second.
constexpr std::chrono::milliseconds kTurn{1200};
constexpr std::chrono::seconds kStoreAnswers{2};
constexpr int kMostRanks = 1 << 20;
constexpr int64_t kMostGroups = 1000;  // the latest ones are asked

std::optional<int> decimal_int(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Variables environment_of(const std::filesystem::path& process) {
  std::ifstream stream(process / "environ", std::ios::binary);
  Variables variables;
  for (std::string line; std::getline(stream, line, '\0');) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) variables[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return variables;
}

std::optional<int> number_under(const Variables& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::nullopt : decimal_int(found->second);
}

// The groups of one attempt of a job, and what they keep in its store.
class Asker {
 public:
  Asker(StoreClient& store, const JobAnswer& job, int64_t index)
      : store_(store),
        prefix_(inquiry::job_prefix(job.world_size, job.job) + inquiry::group_key(index) + "/"),
        answer_{.index = index, .ranks = std::vector<RankAnswer>(size_of(job))} {}

  GroupAnswer ask(Clock::time_point deadline) {
    for (size_t rank = 0; rank < answer_.ranks.size(); ++rank) {
      answer_.ranks[rank].has_left = get(inquiry::goodbye_key(static_cast<int>(rank))).has_value();
    }
    if (put_question(deadline)) {
      while (!take_answers() && Clock::now() < deadline) std::this_thread::sleep_for(kLookAgain);
      // So that ranks that come late, or are woken, need not answer any more.
      store_.set_deadline(Clock::now() + kStoreAnswers);
      store_.compare_set(prefix_ + inquiry::kCallKey, question_, "");
    }
    return std::move(answer_);
  }

 private:
  static size_t size_of(const JobAnswer& job) { return static_cast<size_t>(job.world_size); }

  std::optional<std::string> get(const std::string& key) { return store_.get(prefix_ + key); }

  // False: the group has ended, or others ask without end.
  bool put_question(Clock::time_point deadline) {
    question_ = inquiry::kQuestion + std::to_string(random_bits());
    std::string before;
    while (true) {
      const std::string now = store_.compare_set(prefix_ + inquiry::kCallKey, before, question_);
      if (now == question_) return true;
      const bool is_question = now.empty() || now.starts_with(inquiry::kQuestion);
      if (!is_question) {
        answer_.ended = reason(now);
        return false;
      }
      // Somebody else asks. Whoever has gone without taking a question back is not waited for.
      const bool is_long_there = now == before_;
      before_ = now;
      before = is_long_there ? now : "";
      std::this_thread::sleep_for(is_long_there ? kLookAgain : kTurn);
      if (Clock::now() >= deadline) return false;
    }
  }

  std::string reason(const std::string& call) {
    if (call.starts_with("goodbye")) {
      return call == "goodbye" ? "rank 0 has left it" : "rank 0 has left it after an error";
    }
    const std::string found = get(inquiry::kDiagnosisKey).value_or("");
    return "it has failed" + (found.empty() ? "" : ": " + found.substr(0, found.find('\n')));
  }

  // True once all ranks that are there have answered.
  bool take_answers() {
    bool all = true;
    for (size_t rank = 0; rank < answer_.ranks.size(); ++rank) {
      RankAnswer& own = answer_.ranks[rank];
      if (own.report || own.has_left) continue;
      const std::string said = get(inquiry::answer_key(static_cast<int>(rank))).value_or("");
      if (said.starts_with(question_ + "\n")) {
        own.report = RankReport::decode(said.substr(question_.size() + 1));
      } else {
        all = false;
      }
    }
    return all;
  }

  StoreClient& store_;
  const std::string prefix_;
  GroupAnswer answer_;
  std::string question_;
  std::string before_;
};

}  // namespace

std::vector<LocalJob> find_local_jobs() {
  std::map<StoreAddress, LocalJob> jobs;
  for (const auto& process : folder_entries("/proc")) {
    const std::optional<int> pid = decimal_int(process.filename().string());
    if (!pid || *pid == getpid()) continue;
    const Variables variables = environment_of(process);
    const auto address = variables.find("MASTER_ADDR");
    const std::optional<int> port = number_under(variables, "MASTER_PORT");
    const std::optional<int> rank = number_under(variables, "RANK");
    if (address == variables.end() || !port || !rank) continue;
    if (number_under(variables, "WORLD_SIZE").value_or(1) < 2) continue;
    LocalJob& job = jobs[{.host = address->second, .port = *port}];
    job.store = {.host = address->second, .port = *port};
    // What a rank has started has its variables too, and a higher number in general.
    const auto known = job.pids.find(*rank);
    if (known == job.pids.end() || *pid < known->second) job.pids[*rank] = *pid;
  }
  std::vector<LocalJob> found;
  for (auto& [address, job] : jobs) found.push_back(std::move(job));
  return found;
}

char process_state(int pid) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(stream, line);
  const size_t name_end = line.rfind(") ");
  return name_end == std::string::npos || name_end + 2 >= line.size() ? '\0' : line[name_end + 2];
}

JobAnswer ask_job(const StoreAddress& address, std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  StoreClient store(address.host, address.port, deadline);
  const std::string described = store.get(inquiry::kJobKey).value_or("");
  JobAnswer job;
  std::istringstream(described) >> job.world_size >> job.job;
  if (job.world_size < 1 || job.world_size > kMostRanks) {
    throw CommError({.what = "the store at " + address.text() +
                             " is not that of a program of this library, or its ranks have not "
                             "met yet",
                     .where = address.text(),
                     .hint = "programs of Python's torch cannot be asked"});
  }
  const std::string opened =
      store.get(inquiry::job_prefix(job.world_size, job.job) + inquiry::groups_key(0))
          .value_or("0");
  // That ranks do not answer in time says nothing of the store.
  store.set_deadline(deadline + kStoreAnswers);
  const int64_t count = std::max(decimal_int(opened).value_or(0), 1);
  for (int64_t index = std::max<int64_t>(count - kMostGroups, 0) + 1; index <= count; ++index) {
    job.groups.push_back(Asker(store, job, index).ask(deadline));
  }
  return job;
}

}  // namespace accelerate::launch
