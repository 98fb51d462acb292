// What a job says of itself: to somebody outside, on a signal, after a failure.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <thread>

#include "launch/machines.h"

namespace accelerate::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string file_text(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class Status : public Launcher {
 protected:
  // Ranks that add up without end. Each says its process and where the job meets.
  void start_job(int ranks, const std::vector<std::string>& flags = {},
                 const std::string& words = "") {
    job_ = start_script(
        ranks,
        "echo \"rank $RANK is $$ at $MASTER_PORT.\"\nexec " RANK_PROGRAM " steps 1000000 " + words,
        flags);
    job_->wait_for_output("begins restart 0", ranks);
    const std::string& out = job_->out();
    port_ = std::stoi(out.substr(out.find(" at ") + 4));
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string mark = "rank " + std::to_string(rank) + " is ";
      pids_.push_back(std::stoi(out.substr(out.find(mark) + mark.size())));
    }
  }
  RunResult status(const std::string& patience_s = "1", std::vector<std::string> flags = {}) {
    std::vector<std::string> words = {"status", "127.0.0.1:" + std::to_string(port_), "--timeout",
                                      patience_s};
    words.insert(words.end(), flags.begin(), flags.end());
    return run(words);
  }
  // Asks until the answer holds `text`.
  std::string status_with(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (true) {
      const RunResult result = status();
      if (result.out.find(text) != std::string::npos) return result.out;
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "nobody says '" << text << "': " << result.out << result.err;
        return result.out;
      }
    }
  }
  std::string pid_text(int rank) const { return std::to_string(pids_[static_cast<size_t>(rank)]); }
  void send(int rank, int signal) { ASSERT_EQ(kill(pids_[static_cast<size_t>(rank)], signal), 0); }
  void end_job() {
    job_->signal(SIGTERM);
    job_->wait();
  }

  std::unique_ptr<LauncherRun> job_;
  std::vector<pid_t> pids_;
  int port_ = 0;
};

TEST_F(Status, NamesTheRankThatTheOthersWaitForAndSinceWhen) {
  start_job(3);
  send(1, SIGSTOP);
  const std::string text = status_with("ranks 0 and 2 wait for rank 1 to come to #");
  EXPECT_THAT(text, ContainsRegex("job [0-9a-f]+\\.0 at 127.0.0.1:[0-9]+: 3 ranks\n"));
  EXPECT_THAT(text,
              ContainsRegex("   0 +[^ ]+ +" + pid_text(0) +
                            " +[0-9?]+[ %]* +waits for [0-9.]+ s in all_reduce [^\n]*, #[0-9]+\n"));
  EXPECT_THAT(text, ContainsRegex("   1 +\\? +" + pid_text(1) +
                                  " +does not answer: its process is stopped\n"));
  EXPECT_EQ(status().exit_code, 1);
  send(1, SIGCONT);
  const RunResult all_well = status("100", {"--last", "5"});
  EXPECT_EQ(all_well.exit_code, 0) << all_well.out;
  EXPECT_THAT(all_well.out, Not(HasSubstr("does not answer")));
  EXPECT_THAT(all_well.out,
              ContainsRegex("last entries of rank 2, by their age:\n +[0-9.]+ s  all"));
  end_job();
}

// Row 7 of docs/faults.md.
TEST_F(Status, NamesARankThatIsSlowerThanTheOthers) {
  start_job(3, {}, "--slow 1");
  const std::string text = status_with("rank 1 is slower than the others: it waits for ");
  EXPECT_THAT(text, ContainsRegex("rank +machine +pid +waits +does\n"));
  end_job();
  pids_.clear();
  start_job(3);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  while (std::chrono::steady_clock::now() < deadline) {
    EXPECT_THAT(status().out, Not(HasSubstr("is slower than the others")));
  }
  end_job();
}

TEST_F(Status, FindsTheJobsOfThisMachineByItself) {
  start_job(2);
  const RunResult result = run({"status", "--json"});
  EXPECT_THAT(result.out, HasSubstr("\"store\": \"127.0.0.1:" + std::to_string(port_) + "\""));
  EXPECT_THAT(result.out, HasSubstr("\"pid\": " + pid_text(0)));
  EXPECT_THAT(result.out, HasSubstr("\"pid\": " + pid_text(1)));
  end_job();
}

TEST_F(Status, SaysThatNobodyAnswersWhereRankZeroIsStopped) {
  start_job(2);
  send(0, SIGSTOP);
  const RunResult result = status();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr(": the store of the job at 127.0.0.1:" + std::to_string(port_) +
                                    " does not answer\n"));
  EXPECT_THAT(result.out, HasSubstr("rank 0 is process " + pid_text(0) + ", which is stopped\n"));
  send(0, SIGCONT);
  end_job();
}

TEST_F(Status, OfAnAddressWithoutAJobIsAClearError) {
  const launch::PortReservation reserved = launch::PortReservation::any();
  port_ = reserved.port();
  const RunResult nobody = status();
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.out, HasSubstr("cannot be reached: Connection refused"));
  const RunResult no_address = run({"status", "nowhere"});
  EXPECT_EQ(no_address.exit_code, 2);
  EXPECT_THAT(no_address.err, HasSubstr("'nowhere' is not an address with a port"));
}

TEST_F(Status, ASignalHasARankWriteItsLogAlsoWhileTheStoreDoesNotAnswer) {
  start_job(2);
  send(0, SIGSTOP);
  send(1, SIGUSR2);
  job_->wait_for_error("entries, by their age:\n");
  EXPECT_THAT(job_->err(),
              ContainsRegex("rank 1 of 2 on [^ ]+, pid " + pid_text(1) + ": asked by a signal\n"));
  send(0, SIGCONT);
  end_job();
}

// Ranks that no launcher stops when one of them dies: they find out by themselves.
TEST_F(Status, AFailureThatRanksFindLeavesTheirLogs) {
  const std::filesystem::path logs = folder_.path() / "logs";
  job_ = start_script(1,
                      "export WORLD_SIZE=3 LOCAL_WORLD_SIZE=3\n"
                      "for r in 0 1 2; do\n"
                      "  RANK=$r LOCAL_RANK=$r " RANK_PROGRAM
                      " steps 1000000 &\n"
                      "  echo \"rank $r is $!.\"\n"
                      "done\nwait\nexit 5",
                      {"--cpu", "--log_dir", logs.string(), "--tee", "3"});
  job_->wait_for_output("begins restart 0", 3);
  const std::string mark = "rank 1 is ";
  ASSERT_EQ(kill(std::stoi(job_->out().substr(job_->out().find(mark) + mark.size())), SIGKILL), 0);
  EXPECT_EQ(job_->wait().exit_code, 5);
  for (const std::string rank : {"0", "2"}) {
    const std::string log = file_text(logs / "rank_0" / ("collectives.rank_" + rank + ".log"));
    EXPECT_THAT(log, HasSubstr(": its job has failed\n"));
    EXPECT_THAT(log, ContainsRegex("group all: last #[0-9]+ all_reduce sum Float"));
    EXPECT_THAT(log, ContainsRegex("entries, by their age:\n +[0-9.]+ s  "));
  }
}

}  // namespace
}  // namespace accelerate::test
