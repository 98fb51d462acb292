#include "support/ranks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "support/stack_dump.h"

namespace accelerate::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr size_t kTailBytes = 6000;
constexpr seconds kDumpLimit{40};
// How long the other ranks may go on once one has failed in run().
constexpr seconds kGraceAfterFailure{20};

double deadline_factor() {
  const char* text = std::getenv("ACCELERATE_TEST_DEADLINE");
  const double factor = text == nullptr ? 1.0 : std::atof(text);
  return factor > 0 ? factor : 1.0;
}

steady_clock::duration scaled(seconds limit) {
  return std::chrono::duration_cast<steady_clock::duration>(limit * deadline_factor());
}

std::string tail(const std::string& text, size_t bytes = kTailBytes) {
  return text.size() <= bytes ? text : "[...]" + text.substr(text.size() - bytes);
}

std::string in_seconds(steady_clock::duration time) {
  return std::to_string(std::chrono::duration_cast<seconds>(time).count()) + " s";
}

// Settings of the shell that started the test must not leak into ranks.
void unset_inherited(Environment& environment) {
  static constexpr std::string_view kKept[] = {"ACCELERATE_VECTORS", "ACCELERATE_FIXTURES",
                                               "ACCELERATE_LOG_LEVEL", "ACCELERATE_TEST_DEADLINE",
                                               "ACCELERATE_TEST_DEVICE"};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name =
        std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
    const bool ours = name.starts_with("ACCELERATE_") || name.starts_with("TORCHELASTIC_") ||
                      name.starts_with("OMPI_COMM_") || name.starts_with("PMI_") ||
                      name.starts_with("SLURM_");
    if (ours && std::ranges::find(kKept, name) == std::end(kKept)) {
      environment.emplace_back(name, "");
    }
  }
  for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK",
                           "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    environment.emplace_back(name, "");
  }
}

Environment environment_of(int rank, int world_size, int port, const RankOptions& options) {
  Environment environment;
  unset_inherited(environment);
  environment.emplace_back("OMP_NUM_THREADS", "1");
  const char* device = std::getenv("ACCELERATE_TEST_DEVICE");
  if (device != nullptr && std::string_view(device) == "nccl") {
    environment.emplace_back("ACCELERATE_SHARE_GPUS", "true");
  }
  if (options.launched) {
    environment.emplace_back("RANK", std::to_string(rank));
    environment.emplace_back("LOCAL_RANK", std::to_string(rank));
    environment.emplace_back("WORLD_SIZE", std::to_string(world_size));
    environment.emplace_back("LOCAL_WORLD_SIZE", std::to_string(world_size));
    environment.emplace_back("MASTER_ADDR", "127.0.0.1");
    environment.emplace_back("MASTER_PORT", std::to_string(port));
  }
  environment.insert(environment.end(), options.environment.begin(), options.environment.end());
  return environment;
}

void skip_test(const std::string& why) { GTEST_SKIP() << why; }

}  // namespace

Ranks::~Ranks() {
  members_.clear();
  if (stages_ != nullptr) munmap(stages_, sizeof(SharedStage) * static_cast<size_t>(world_size_));
}

void Ranks::TearDown() { finish(); }

void Ranks::run(int world_size, const RankBody& body, const RankOptions& options) {
  spawn(world_size, body, options);
  wait_until(
      [&] {
        return all_left() || std::ranges::any_of(members_, [](Member& m) {
                 return m.process->has_left() && m.process->exit_code() != kExitPassed;
               });
      },
      "the end of all ranks");
  if (!all_left()) {
    deadline_ = std::min(deadline_, steady_clock::now() + scaled(kGraceAfterFailure));
  }
  finish();
}

void Ranks::spawn(int world_size, const RankBody& body, const RankOptions& options) {
  finish();
  if (stages_ != nullptr) munmap(stages_, sizeof(SharedStage) * static_cast<size_t>(world_size_));
  world_size_ = world_size;
  stages_ =
      static_cast<SharedStage*>(mmap(nullptr, sizeof(SharedStage) * static_cast<size_t>(world_size),
                                     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (stages_ == MAP_FAILED) {
    stages_ = nullptr;
    throw std::runtime_error("cannot map memory for the stages of the ranks");
  }
  for (int rank = 0; rank < world_size; ++rank) new (&stages_[rank]) SharedStage;
  results_.assign(static_cast<size_t>(world_size), "");
  port_.emplace();
  started_ = since_ = steady_clock::now();
  deadline_ = started_ + scaled(options.deadline);
  const uint64_t first_seed = 1000 * static_cast<uint64_t>(++groups_);
  for (int rank = 0; rank < world_size; ++rank) {
    if (!options.only.empty() && std::ranges::find(options.only, rank) == options.only.end()) {
      continue;
    }
    members_.push_back(
        {.rank = rank,
         .process = std::make_unique<RankProcess>(
             rank, world_size, stages_, environment_of(rank, world_size, port_->number(), options),
             first_seed + static_cast<uint64_t>(rank), body)});
  }
}

void Ranks::kill_rank(int rank, int signal) {
  Member& target = member(rank);
  target.end_expected = true;
  since_ = steady_clock::now();
  target.process->send(signal);
}

void Ranks::stop_rank(int rank) {
  since_ = steady_clock::now();
  member(rank).process->send(SIGSTOP);
}

void Ranks::continue_rank(int rank) { member(rank).process->send(SIGCONT); }

bool Ranks::wait_for_stage(int rank, int stage) {
  Member& target = member(rank);
  const auto reached = [&] { return stages_[rank].value.load() >= stage; };
  wait_until([&] { return reached() || target.process->has_left(); },
             "rank " + std::to_string(rank) + " to reach stage " + std::to_string(stage));
  if (reached()) return true;
  ADD_FAILURE() << "rank " << rank << " left before it reached stage " << stage;
  return false;
}

int Ranks::exit_code_of(int rank) {
  Member& target = member(rank);
  wait_until([&] { return target.process->has_left(); }, "the end of rank " + std::to_string(rank));
  target.end_expected = true;
  report(target);
  return target.process->exit_code();
}

std::string Ranks::error_of(int rank) {
  exit_code_of(rank);
  for (const Report& report : member(rank).process->reports()) {
    if (report.kind == Report::Kind::kException) return report.text;
  }
  return {};
}

std::string Ranks::output_of(int rank) const { return member(rank).process->output(); }

void Ranks::wait_all() {
  wait_until([&] { return all_left(); }, "the end of all ranks");
}

milliseconds Ranks::elapsed() const {
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - since_);
}

Ranks::Member& Ranks::member(int rank) {
  return const_cast<Member&>(static_cast<const Ranks*>(this)->member(rank));
}

const Ranks::Member& Ranks::member(int rank) const {
  const auto found = std::ranges::find(members_, rank, &Member::rank);
  if (found == members_.end()) throw std::out_of_range("no rank " + std::to_string(rank));
  return *found;
}

template <typename Done>
bool Ranks::wait_until(Done done, const std::string& for_what) {
  while (!done()) {
    if (steady_clock::now() >= deadline_) {
      give_up(for_what);
      return false;
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

void Ranks::give_up(const std::string& waited_for) {
  std::string text = "deadline: waited " + in_seconds(steady_clock::now() - started_) + " for " +
                     waited_for + "\n";
  const auto dump_end = steady_clock::now() + kDumpLimit;
  for (Member& member : members_) {
    if (member.process->has_left()) continue;
    const auto left = std::chrono::duration_cast<seconds>(dump_end - steady_clock::now());
    text += "[rank " + std::to_string(member.rank) + "] is still running:\n" +
            tail(stacks_of(member.process->pid(), std::max(left, seconds(2)),
                           [&] { return member.process->output(); })) +
            "\n";
  }
  for (Member& member : members_) {
    if (member.process->has_left()) continue;
    member.end_expected = true;  // it is this failure that tells of it
    killpg(member.process->pid(), SIGKILL);
  }
  for (Member& member : members_) {
    while (!member.process->has_left()) std::this_thread::sleep_for(milliseconds(1));
    text += "[rank " + std::to_string(member.rank) + "] left with code " +
            std::to_string(member.process->exit_code()) + " and had printed:\n" +
            tail(member.process->output()) + "\n";
  }
  ADD_FAILURE() << text;
}

bool Ranks::all_left() {
  return std::ranges::all_of(members_, [](Member& m) { return m.process->has_left(); });
}

void Ranks::report(Member& member) {
  if (member.reported) return;
  member.reported = true;
  const std::string prefix = "[rank " + std::to_string(member.rank) + "] ";
  for (Report& report : member.process->reports()) {
    switch (report.kind) {
      case Report::Kind::kFailure:
        ADD_FAILURE_AT(report.file.c_str(), report.line) << prefix << report.text;
        break;
      case Report::Kind::kSkip:
        skip_test(prefix + report.text);
        break;
      case Report::Kind::kResult:
        results_[static_cast<size_t>(member.rank)] = std::move(report.text);
        break;
      case Report::Kind::kException:
        if (member.end_expected) break;
        ADD_FAILURE() << prefix << "an exception left its body: " << report.text
                      << "\nit had printed:\n"
                      << tail(member.process->output());
        member.end_expected = true;
        break;
    }
  }
  const int code = member.process->exit_code();
  if (member.end_expected || code == kExitPassed || code == kExitFailed) return;
  ADD_FAILURE() << prefix << "left with code " << code << ", having printed:\n"
                << tail(member.process->output());
}

// Ends the group that is there: waits, reports what nobody asked for, removes the processes.
void Ranks::finish() {
  if (members_.empty()) return;
  wait_all();
  for (Member& member : members_) report(member);
  members_.clear();
}

}  // namespace accelerate::test
