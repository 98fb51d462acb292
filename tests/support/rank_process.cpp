#include "support/rank_process.h"

#include <accelerate/errors.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <typeinfo>

#include "support/sanitizers.h"
#include "support/stack_dump.h"

namespace accelerate::test {
namespace {

constexpr bool kSanitizerStartsThreads = ACCELERATE_TEST_THREAD_SANITIZER != 0;

// Takes the place of gtest's printer in a rank.
class ReportListener : public testing::EmptyTestEventListener {
 public:
  explicit ReportListener(ReportWriter* reports) : reports_(reports) {}

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.passed()) return;
    if (result.failed()) failed_ = true;
    reports_->write({.kind = result.skipped() ? Report::Kind::kSkip : Report::Kind::kFailure,
                     .file = result.file_name() == nullptr ? "" : result.file_name(),
                     .line = result.line_number(),
                     .text = result.message()});
  }

  bool failed() const { return failed_; }

 private:
  ReportWriter* reports_;
  std::atomic<bool> failed_{false};
};

void (*rank_setup)(uint64_t seed) = nullptr;

// Runs `body` and says how it ended; exceptions become a report.
int run_body(const Rank& rank, uint64_t seed, const RankBody& body, ReportWriter& reports) {
  const auto ended_by = [&](const char* text, int exit_code) {
    reports.write({.kind = Report::Kind::kException, .text = text});
    return exit_code;
  };
  try {
    if (rank_setup != nullptr) rank_setup(seed);
    body(rank);
    return kExitPassed;
  } catch (const UsageError& error) {
    return ended_by(error.what(), kExitUsageError);
  } catch (const ConfigError& error) {
    return ended_by(error.what(), kExitConfigError);
  } catch (const CommError& error) {
    return ended_by(error.what(), kExitCommError);
  } catch (const DataError& error) {
    return ended_by(error.what(), kExitDataError);
  } catch (const CheckpointError& error) {
    return ended_by(error.what(), kExitCheckpointError);
  } catch (const std::exception& error) {
    return ended_by((std::string(typeid(error).name()) + ": " + error.what()).c_str(),
                    kExitOtherException);
  } catch (...) {
    return ended_by("an exception that is not a std::exception", kExitOtherException);
  }
}

[[noreturn]] void be_rank(const Rank& rank, uint64_t seed, const RankBody& body,
                          ReportWriter& reports) {
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  auto* listener = new ReportListener(&reports);
  listeners.Append(listener);
  int exit_code = run_body(rank, seed, body, reports);
  if (exit_code == kExitPassed && listener->failed()) exit_code = kExitFailed;
  std::fflush(nullptr);
  _exit(exit_code);  // the parent's atexit handlers are not this process's business
}

void require_single_thread() {
  if (kSanitizerStartsThreads) return;
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  if (std::distance(begin(tasks), end(tasks)) == 1) return;
  throw std::logic_error(
      "the test program has started threads: it must leave all use of libtorch to the ranks");
}

int memory_file(const char* name) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  return fd;
}

}  // namespace

void set_rank_setup(void (*setup)(uint64_t seed)) { rank_setup = setup; }

void Rank::wait_for(int other, int stage) const {
  while (stages_[other].value.load() < stage) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void Rank::give(std::string bytes) const {
  reports_->write({.kind = Report::Kind::kResult, .text = std::move(bytes)});
}

RankProcess::RankProcess(int rank, int world_size, SharedStage* stages,
                         const Environment& environment, uint64_t seed, const RankBody& body) {
  require_single_thread();
  output_fd_ = memory_file("output");
  report_fd_ = memory_file("reports");
  std::fflush(nullptr);  // else the child prints again what is still in the parent's buffers
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ > 0) {
    setpgid(pid_, pid_);
    return;
  }
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(128 + SIGKILL);
  dup2(output_fd_, STDOUT_FILENO);
  dup2(output_fd_, STDERR_FILENO);
  allow_stack_dump();
  for (const auto& [name, value] : environment) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ReportWriter reports(report_fd_);
  be_rank(Rank(rank, world_size, stages, &reports), seed, body, reports);
}

RankProcess::~RankProcess() {
  if (pid_ > 0) killpg(pid_, SIGKILL);
  if (pid_ > 0 && !left_) waitpid(pid_, nullptr, 0);
  close(output_fd_);
  close(report_fd_);
}

void RankProcess::send(int signal) {
  if (!has_left()) kill(pid_, signal);
}

bool RankProcess::has_left() {
  int status = 0;
  if (left_ || waitpid(pid_, &status, WNOHANG) != pid_) return left_;
  left_ = true;
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

}  // namespace accelerate::test
