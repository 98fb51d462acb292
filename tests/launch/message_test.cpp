#include "launch/remote/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "launch/plan/plan_fields.h"
#include "launch/remote/job_control.h"
#include "launch/remote/remote_plan.h"

namespace accelerate::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Message, ComesBackAsItWas) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  Message message("hello");
  message.set("text", all).set("number", -7).set("list", std::vector<std::string>{"a\nb", "", all});
  const std::string line = message.encode();
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  const auto back = Message::decode(line);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->name(), "hello");
  EXPECT_EQ(back->text("text"), all);
  EXPECT_EQ(back->number("number"), -7);
  EXPECT_THAT(back->texts("list"), ElementsAre("a\nb", "", all));
  EXPECT_FALSE(back->has("other"));
  EXPECT_EQ(back->text("other"), "");
}

TEST(Message, WhatIsNoMessageIsRefused) {
  for (const char* line : {"", " ", "name key", "name =v", "name key=%", "name key=%4",
                           "name key=%zz", "name key=\x01", "GET / HTTP/1.1\r", "name  key=v"}) {
    EXPECT_FALSE(Message::decode(line)) << line;
  }
  EXPECT_FALSE(Message::decode(std::string(Message::kMaxBytes + 1, 'a')));
}

TEST(Message, DamagedLinesAreReadOrRefusedButDoNoHarm) {
  const std::string line =
      Order{.kind = Order::Kind::kStart, .attempt = 3, .main_address = "a b%", .main_port = 7}
          .message()
          .encode();
  std::mt19937 random(7);
  for (int round = 0; round < 50'000; ++round) {
    std::string damaged = line;
    for (int hits = 1 + static_cast<int>(random() % 3); hits > 0; --hits) {
      const size_t at = random() % damaged.size();
      if (random() % 4 == 0) {
        damaged.resize(at + 1);
      } else {
        damaged[at] = static_cast<char>(random());
      }
    }
    const auto message = Message::decode(damaged);
    if (message) {
      EXPECT_EQ(Message::decode(message->encode())->encode(), message->encode());
    }
  }
}

TEST(Message, ReportsKeepWhatIsKnownOfAFailure) {
  MachineReport report{
      .kind = MachineReport::Kind::kFailed, .attempt = 2, .signal = 0, .ends = {}, .grace = {}};
  report.ends.push_back({.rank = 5,
                         .host = "node 1",
                         .pid = 77,
                         .wait_status = 256,
                         .after = std::chrono::milliseconds(1234),
                         .fate = WorkerFate::kFailed,
                         .exception = "E: 50% of it",
                         .last_lines = {"one", "", "three = 3"}});
  const auto line = Message::decode(report.message().encode());
  ASSERT_TRUE(line);
  const auto back = MachineReport::from(*line);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->attempt, 2);
  ASSERT_EQ(back->ends.size(), 1U);
  EXPECT_EQ(back->ends[0].rank, 5);
  EXPECT_EQ(back->ends[0].host, "node 1");
  EXPECT_EQ(back->ends[0].wait_status, 256);
  EXPECT_EQ(back->ends[0].after.count(), 1234);
  EXPECT_EQ(back->ends[0].exception, "E: 50% of it");
  EXPECT_THAT(back->ends[0].last_lines, ElementsAre("one", "", "three = 3"));
}

TEST(Message, OrdersAndReportsAreNotTakenForEachOther) {
  EXPECT_FALSE(Order::from(MachineReport{}.message()));
  EXPECT_FALSE(MachineReport::from(Order{}.message()));
  EXPECT_FALSE(Order::from(Message("alive")));
}

TEST(RemotePlan, ComesBackFromOneWordThatNoShellTouches) {
  RemotePlan remote;
  LaunchPlan& plan = remote.plan;
  plan.command = {"/a b/train", "--name", "it's $HOME; rm -rf *", ""};
  plan.num_processes = 6;
  plan.num_machines = 3;
  plan.machine_rank = 1;
  plan.main_address = "fd00::1";
  plan.main_port = 29501;
  plan.mixed_precision = "bf16";
  plan.variables = {{"A", "x=y z"}};
  plan.gpu_ids = "0,2";
  plan.num_cpu_threads_per_process = 4;
  plan.log_dir = "logs/it's";
  plan.tee = Tee::parse("0:3,1:2");
  plan.max_restarts = 2;
  plan.join_timeout = std::chrono::milliseconds(1234);
  plan.run_id = "job 7";
  plan.repeat_last_lines = false;
  remote.folder = "/home/me";
  remote.environment = {"PATH=/bin:/usr/bin"};
  remote.has_lifeline = true;

  const std::string word = encode_remote_plan(remote);
  EXPECT_EQ(word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                   "%_-./:,+@"),
            std::string::npos);
  const RemotePlan back = decode_remote_plan(word);
  EXPECT_EQ(back.plan.command, plan.command);
  EXPECT_EQ(back.plan.num_processes, 6);
  EXPECT_EQ(back.plan.num_machines, 3);
  EXPECT_EQ(back.plan.machine_rank, 1);
  EXPECT_EQ(back.plan.main_address, "fd00::1");
  EXPECT_EQ(back.plan.main_port, 29501);
  EXPECT_EQ(back.plan.mixed_precision, "bf16");
  EXPECT_EQ(back.plan.variables, plan.variables);
  EXPECT_EQ(back.plan.gpu_ids, "0,2");
  EXPECT_EQ(back.plan.num_cpu_threads_per_process, 4);
  EXPECT_EQ(back.plan.log_dir, plan.log_dir);
  EXPECT_EQ(back.plan.tee->streams_of(1), 2);
  EXPECT_EQ(back.plan.max_restarts, 2);
  EXPECT_EQ(back.plan.join_timeout, plan.join_timeout);
  EXPECT_EQ(back.plan.run_id, "job 7");
  EXPECT_FALSE(back.plan.repeat_last_lines);
  EXPECT_EQ(back.folder, "/home/me");
  EXPECT_EQ(back.environment, remote.environment);
  EXPECT_TRUE(back.has_lifeline);
  EXPECT_FALSE(back.place_from_slurm);
  EXPECT_EQ(back.plan.launcher, LauncherKind::kLocal);
}

// Gives every field a value that is not its preset.
struct Changed {
  int count = 0;

  void operator()(const char*, std::string& field) { field = "text " + std::to_string(++count); }
  void operator()(const char*, int& field) { field += ++count; }
  void operator()(const char*, bool& field) { field = !field; }
  void operator()(const char*, std::chrono::milliseconds& field) {
    field += std::chrono::milliseconds(++count);
  }
  void operator()(const char*, std::filesystem::path& field) {
    field = "folder_" + std::to_string(++count);
  }
  void operator()(const char*, std::vector<std::string>& field) {
    field = {"", "one", std::to_string(++count)};
  }
  void operator()(const char*, std::vector<std::pair<std::string, std::string>>& field) {
    field = {{"NAME", "a=b"}, {"COUNT", std::to_string(++count)}};
  }
  void operator()(const char*, Tee& field) { field = Tee::parse("0:3,1:2"); }
  void operator()(const char*, LauncherKind& field) { field = LauncherKind::kSsh; }
  template <typename T>
  void operator()(const char* key, std::optional<T>& field) {
    (*this)(key, field.emplace());
  }
};

// A text for every field.
struct Written {
  std::map<std::string, std::string> texts;

  void operator()(const char* key, const std::string& field) { texts[key] += field; }
  void operator()(const char* key, int field) { texts[key] += std::to_string(field); }
  void operator()(const char* key, bool field) { texts[key] += field ? "yes" : "no"; }
  void operator()(const char* key, std::chrono::milliseconds field) {
    texts[key] += std::to_string(field.count());
  }
  void operator()(const char* key, const std::filesystem::path& field) {
    texts[key] += field.string();
  }
  void operator()(const char* key, const std::vector<std::string>& field) {
    texts[key] += std::to_string(field.size()) + ":";
    for (const std::string& each : field) texts[key] += each + "|";
  }
  void operator()(const char* key, const std::vector<std::pair<std::string, std::string>>& field) {
    texts[key] += std::to_string(field.size()) + ":";
    for (const auto& [name, value] : field) texts[key] += name + ":" + value + "|";
  }
  void operator()(const char* key, const Tee& field) {
    texts[key] += std::to_string(field.streams_of(0)) + std::to_string(field.streams_of(1));
  }
  void operator()(const char* key, LauncherKind field) {
    texts[key] += std::to_string(static_cast<int>(field));
  }
  template <typename T>
  void operator()(const char* key, const std::optional<T>& field) {
    texts[key] += field ? "set " : "unset";
    if (field) (*this)(key, *field);
  }
};

std::map<std::string, std::string> texts_of(const LaunchPlan& plan) {
  Written written;
  visit_fields(plan, written, written);
  return written.texts;
}

TEST(RemotePlan, EveryFieldOfAPlanTravelsOrIsKnownToStay) {
  RemotePlan remote;
  Changed changed;
  visit_fields(remote.plan, changed, changed);
  const auto presets = texts_of(LaunchPlan{});
  const auto sent = texts_of(remote.plan);
  const auto come = texts_of(decode_remote_plan(encode_remote_plan(remote)).plan);
  ASSERT_EQ(sent.size(), 35U);
  for (const auto& [key, text] : sent) {
    EXPECT_NE(text, presets.at(key)) << key;
    const bool stays = key == "launcher" || key == "hostfile" || key == "launcher_command" ||
                       key == "page_socket" || key == "page_token";
    EXPECT_EQ(come.at(key), stays ? presets.at(key) : text) << key;
  }
}

TEST(RemotePlan, LongCommandLinesComeBackFromAStream) {
  RemotePlan remote;
  remote.plan.command = {"/bin/train"};
  for (int i = 0; i < 12; ++i) remote.plan.command.push_back(std::string(100'000, '"'));
  const std::string text = remote_plan_for_stream(remote) + "rest";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::thread writer([&] {
    EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  });
  const RemotePlan back = read_remote_plan(ends[0]);
  writer.join();
  EXPECT_EQ(back.plan.command, remote.plan.command);
  char rest[5] = {};
  EXPECT_EQ(read(ends[0], rest, 4), 4);
  EXPECT_STREQ(rest, "rest");
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace accelerate::launch
