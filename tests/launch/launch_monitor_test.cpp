// A job that is recorded and looked at: `launch --run_dir`, `launch --monitor`, `top`, `monitor`.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "launch/launcher_run.h"
#include "run_record/record_reader.h"

namespace accelerate::test {
namespace {

namespace fs = std::filesystem;
namespace rec = run_record;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

int port_in(const std::string& text) {
  const size_t at = text.find("http://127.0.0.1:");
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + 17);
}

// What the page says to a request; "" if nobody listens.
std::string got(int port, const std::string& target) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return "";
  const std::string request =
      "GET " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
  std::string answer;
  char buffer[4096];
  for (ssize_t count = 0; (count = recv(socket.get(), buffer, sizeof buffer, 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(count));
  }
  return answer;
}

nlohmann::json state_at(int port) {
  const std::string answer = got(port, "/api/state");
  return nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4)).at(0);
}

template <class Wanted>
nlohmann::json wait_for_state(int port, Wanted wanted) {
  const auto give_up = std::chrono::steady_clock::now() + kDeadline;
  while (true) {
    nlohmann::json state = state_at(port);
    if (wanted(state)) return state;
    if (std::chrono::steady_clock::now() >= give_up) {
      ADD_FAILURE() << "not in time: " << state.dump(1);
      return state;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

template <class T>
std::vector<T> records_of(const fs::path& file) {
  rec::RecordReader reader(file);
  std::vector<T> found;
  while (const auto record = reader.next()) {
    if (const T* any = std::get_if<T>(&*record)) found.push_back(*any);
  }
  return found;
}

class LaunchMonitor : public Launcher {
 protected:
  fs::path run_dir() const { return folder_.path() / "run"; }
};

TEST_F(LaunchMonitor, ARunIsRecordedWithItsSettingsWorkersAndEnd) {
  const RunResult result = run_script(2, "echo line of $RANK; exit $((RANK * 3))",
                                      {"--run_dir", run_dir().string(), "--mixed_precision=bf16"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("the run is recorded in " + run_dir().string()));
  const auto settings = records_of<rec::Setting>(run_dir() / "command_0-000.rec");
  const auto precision = std::find_if(settings.begin(), settings.end(), [](const auto& setting) {
    return setting.name == "mixed_precision";
  });
  ASSERT_NE(precision, settings.end());
  EXPECT_EQ(precision->value, "bf16");
  EXPECT_EQ(precision->source, "--mixed_precision");
  EXPECT_TRUE(precision->is_given);
  const auto end = records_of<rec::End>(run_dir() / "command_0-000.rec");
  ASSERT_EQ(end.size(), 1U);
  EXPECT_EQ(end[0].exit_code, 3);

  const fs::path launcher = run_dir() / "launcher_0-000.rec";
  EXPECT_EQ(records_of<rec::WorkerStarted>(launcher).size(), 2U);
  const auto ends = records_of<rec::WorkerEnded>(launcher);
  ASSERT_EQ(ends.size(), 2U);
  for (const rec::WorkerEnded& each : ends) {
    EXPECT_EQ(each.how == "exited with status 3", each.rank == 1) << each.how;
  }
  std::vector<std::string> lines;
  for (const rec::Lines& each : records_of<rec::Lines>(launcher)) {
    lines.insert(lines.end(), each.lines.begin(), each.lines.end());
  }
  EXPECT_THAT(lines, Contains("line of 1"));

  const RunResult top = run({"top", run_dir().string()});
  EXPECT_EQ(top.exit_code, 1);
  EXPECT_THAT(top.out, HasSubstr("failed (exit code 3)"));
  EXPECT_THAT(top.out, HasSubstr("   1  failed"));
}

TEST_F(LaunchMonitor, WorkersAreToldTheFolder) {
  const RunResult result =
      run_script(1, "echo $ACCELERATE_RUN_DIR", {"--run_dir", run_dir().string(), "--quiet"});
  EXPECT_EQ(result.out, run_dir().string() + "\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(run_script(1, "echo ${ACCELERATE_RUN_DIR-unset}").out, "unset\n");
}

TEST_F(LaunchMonitor, RestartsAreTold) {
  const RunResult result = run_script(1, "exit $((1 - TORCHELASTIC_RESTART_COUNT))",
                                      {"--run_dir", run_dir().string(), "--max_restarts", "1"});
  EXPECT_EQ(result.exit_code, 0);
  const auto attempts = records_of<rec::Attempt>(run_dir() / "launcher_0-000.rec");
  ASSERT_EQ(attempts.size(), 2U);
  EXPECT_EQ(attempts[1].restarts, 1U);
  const RunResult top = run({"top", run_dir().string()});
  EXPECT_EQ(top.exit_code, 0);
  EXPECT_THAT(top.out, HasSubstr("1 restart\n"));
}

TEST_F(LaunchMonitor, ThePageShowsARunWhileItGoesOnAndEndsWithIt) {
  auto launcher = start_script(2, "echo hello from $RANK; cat; echo done",
                               {"--monitor=127.0.0.1:0", "--run_dir", run_dir().string()},
                               {.in_terminal = true});
  launcher->wait_for_output("the page of this run is http://127.0.0.1:");
  const int port = port_in(launcher->out());
  ASSERT_GT(port, 0);
  EXPECT_THAT(got(port, "/"), HasSubstr("<title>accelerate monitor</title>"));
  const auto state = wait_for_state(port, [](const nlohmann::json& each) {
    return each["ranks"].size() == 2 && !each["ranks"][1]["lines"].empty();
  });
  EXPECT_EQ(state["state"], "running");
  EXPECT_EQ(state["ranks"][1]["lines"][0], "hello from 1");
  EXPECT_EQ(state["ranks"][0]["state"], "running");
  wait_for_state(port, [](const nlohmann::json& each) { return !each["devices"].empty(); });
  launcher->type("\x04");  // the end of the input
  EXPECT_EQ(launcher->wait().exit_code, 0);
  // The process of the page has a second for those who still look.
  const auto give_up = std::chrono::steady_clock::now() + kDeadline;
  while (!got(port, "/api/runs").empty() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(got(port, "/api/runs"), "");
}

TEST_F(LaunchMonitor, ThePageOfALauncherThatWasKilledEndsToo) {
  auto launcher =
      start_script(1, "sleep 1000", {"--monitor=127.0.0.1:0", "--run_dir", run_dir().string()});
  launcher->wait_for_error("the run is recorded in");
  const int port = port_in(launcher->err());
  EXPECT_THAT(got(port, "/api/runs"), StartsWith("HTTP/1.1 200"));
  launcher->signal(SIGKILL);
  launcher->wait();
  const auto give_up = std::chrono::steady_clock::now() + kDeadline;
  while (!got(port, "/api/runs").empty() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(got(port, "/api/runs"), "");
}

TEST_F(LaunchMonitor, APageThatCannotBeServedStartsNothing) {
  const RunResult result = run_script(
      1, "echo started", {"--monitor=nowhere.invalid:1", "--run_dir", run_dir().string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("cannot resolve nowhere.invalid"));
  EXPECT_THAT(result.err, HasSubstr("--monitor"));
  EXPECT_FALSE(fs::exists(run_dir()));
}

TEST_F(LaunchMonitor, AFolderThatCannotBeWrittenStartsNothing) {
  const RunResult result = run_script(1, "echo started", {"--run_dir", "/proc/nowhere"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("cannot record the run"));
}

TEST_F(LaunchMonitor, WithoutAFolderTheRunHasOneOfItsOwn) {
  folder_.write("worker.sh", "true");
  const std::string home = (folder_.path() / "state").string();
  const RunResult result =
      run({"launch", "--monitor=127.0.0.1:0", "sh", (folder_.path() / "worker.sh").string()},
          {.environment = {{"XDG_STATE_HOME", home}}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("recorded in " + home + "/accelerate/runs/sh-"));
  const RunResult top = run({"top"}, {.environment = {{"XDG_STATE_HOME", home}}});
  EXPECT_EQ(top.exit_code, 0);
  EXPECT_THAT(top.out, StartsWith("sh-"));
}

TEST_F(LaunchMonitor, ARunIsServedLater) {
  run_script(1, "echo before", {"--run_dir", run_dir().string()});
  auto server = start({"monitor", run_dir().string(), "--listen", "127.0.0.1:0"});
  server->wait_for_output("http://127.0.0.1:");
  const auto state = state_at(port_in(server->out()));
  EXPECT_EQ(state["state"], "done");
  EXPECT_EQ(state["ranks"][0]["ended"], "exited with status 0");
  server->signal(SIGTERM);
  EXPECT_EQ(server->wait().exit_code, 0);
}

TEST_F(LaunchMonitor, ARunThatThereIsNotIsNamed) {
  for (const char* command : {"top", "monitor"}) {
    const RunResult result = run({command, "no-such-run"});
    EXPECT_EQ(result.exit_code, 2) << command;
    EXPECT_THAT(result.err, HasSubstr("there is no recorded run no-such-run"));
  }
}

// The library in the workers: steps and what they are made of.
TEST_F(LaunchMonitor, AProgramOfTheLibraryRecordsItsSteps) {
  const RunResult result =
      run({"launch", "--cpu", "--num_processes", "2", "--run_dir", run_dir().string(),
           TRAINING_PROGRAM, (folder_.path() / "project").string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* rank : {"rank_0-000.rec", "rank_1-000.rec"}) {
    const auto begin = records_of<rec::Begin>(run_dir() / rank);
    ASSERT_EQ(begin.size(), 1U) << rank;
    EXPECT_EQ(begin[0].world_size, 2U);
    EXPECT_EQ(begin[0].version, ACCELERATE_TEST_VERSION);
    uint64_t count = 0;
    uint64_t samples = 0;
    uint64_t last = 0;
    uint64_t parts = 0;
    for (const rec::Steps& steps : records_of<rec::Steps>(run_dir() / rank)) {
      count += steps.count;
      samples += steps.samples;
      last = steps.last;
      parts += steps.parts.size();
      EXPECT_GE(steps.total_us, steps.longest_us);
    }
    EXPECT_GT(count, 1U) << rank;
    EXPECT_EQ(count, last) << "each step is counted once";
    EXPECT_GE(samples, count);
    EXPECT_GT(parts, 0U);
    std::vector<std::string> names;
    for (const rec::Name& name : records_of<rec::Name>(run_dir() / rank))
      names.push_back(name.text);
    EXPECT_THAT(names, ::testing::IsSupersetOf({"data", "backward", "optimizer"}));
    EXPECT_EQ(std::count(names.begin(), names.end(), "loss"), begin[0].index == 0 ? 1 : 0);
    EXPECT_EQ(records_of<rec::End>(run_dir() / rank).size(), 1U);
    const auto values = records_of<rec::Values>(run_dir() / rank);
    EXPECT_EQ(values.empty(), begin[0].index == 1);
    EXPECT_TRUE(values.empty() || values.size() >= count) << "one a batch";
    int saved = 0;
    for (const auto& checkpoint : records_of<rec::Checkpoint>(run_dir() / rank)) {
      EXPECT_FALSE(checkpoint.failed);
      saved += checkpoint.is_open ? 0 : 1;
    }
    EXPECT_GT(saved, 0);
  }
}

}  // namespace
}  // namespace accelerate::test
