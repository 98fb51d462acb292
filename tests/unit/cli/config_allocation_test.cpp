// What an allocation decides of a run, and what a command line and a file decide before it.
#include <gtest/gtest.h>

#include "accelerate/errors.h"
#include "cli/commands/launch_allocation.h"
#include "cli/commands/launch_command.h"
#include "cli/commands/launch_notes.h"
#include "cli/reports/system_facts.h"
#include "config/schema.h"

namespace accelerate::cli {
namespace {

using config::Settings;
using launch::Allocation;

const Allocation kTwoMachines{.num_machines = 2};

struct Outcome {
  Settings settings;
  std::string sentence{};

  int of(const char* name) const { return settings.integer(name).value_or(-1); }
};

Outcome taken(const Allocation& allocation, const std::string& text,
              const std::vector<std::pair<std::string, std::string>>& flags = {}, int gpus = 0) {
  config::SettingsInput input{.gpus = gpus};
  for (const auto& [flag, value] : flags) {
    input.flags.push_back({config::find_flag(flag), value, flag});
  }
  std::optional<config::ConfigFile> file;
  if (!text.empty()) {
    file = config::interpret_config(config::parse_config_text(text, "c.yaml"), "c.yaml");
    input.file = &*file;
  }
  Outcome outcome{.settings = config::resolve_settings(input)};
  outcome.sentence = take_allocation(allocation, outcome.settings);
  return outcome;
}

TEST(AllocationOfARun, AllMachinesAreUsedWhereNobodySaysOtherwise) {
  const Allocation allocation{.num_machines = 2,
                              .machine_rank = 1,
                              .main_address = "node1",
                              .main_port = 21000,
                              .one_task_a_machine = true,
                              .run_id = "slurm-7.0"};
  const Outcome run = taken(allocation, "", {}, 4);
  EXPECT_EQ(run.of("num_machines"), 2);
  EXPECT_EQ(run.of("num_processes"), 8);
  EXPECT_EQ(run.of("machine_rank"), 1);
  EXPECT_EQ(run.settings.text("main_process_ip"), "node1");
  EXPECT_EQ(run.of("main_process_port"), 21000);
  EXPECT_EQ(run.settings.text("run_id"), "slurm-7.0");
  EXPECT_EQ(run.settings.text("launcher"), "local");
  EXPECT_EQ(run.settings["num_machines"].source.where, "the allocation of SLURM");
  EXPECT_EQ(run.sentence, "");
}

TEST(AllocationOfARun, TheFileThatConfigWritesKeepsNoJobOnOneMachine) {
  const Outcome run = taken({.num_machines = 2, .machine_rank = 1, .one_task_a_machine = true},
                            config::yaml_text(config::default_document("no", 4)));
  EXPECT_EQ(run.of("num_machines"), 2);
  EXPECT_EQ(run.of("num_processes"), 8);
  EXPECT_EQ(run.of("machine_rank"), 1);
  EXPECT_NE(run.sentence, "");
}

TEST(AllocationOfARun, WhatItOverrulesIsNamed) {
  const std::string file = "distributed_type: MULTI_CPU\nnum_machines: 1\nnum_processes: 3\n";
  EXPECT_EQ(taken(kTwoMachines, file).sentence,
            "the allocation has 2 machines; not used: num_machines 1 (c.yaml:2); for each machine: "
            "num_processes 3 (c.yaml:3)");
  const Outcome asked = taken({.num_machines = 2, .num_processes = 8}, file);
  EXPECT_EQ(asked.of("num_processes"), 8);
  EXPECT_EQ(asked.sentence,
            "the allocation has 2 machines; not used: num_machines 1 (c.yaml:2) and num_processes "
            "3 (c.yaml:3)");
}

TEST(AllocationOfARun, AFlagAndAFileForSeveralMachinesCountBefore) {
  const std::string file = "distributed_type: MULTI_CPU\nnum_machines: 1\nnum_processes: 4\n";
  const Outcome one = taken(kTwoMachines, file, {{"--num_machines", "1"}});
  EXPECT_EQ(one.of("num_machines"), 1);
  EXPECT_EQ(one.of("num_processes"), 4);
  const Outcome six = taken(kTwoMachines, file, {{"--num_processes", "6"}});
  EXPECT_EQ(six.of("num_machines"), 2);
  EXPECT_EQ(six.of("num_processes"), 6);
}

TEST(AllocationOfARun, AsManyMachinesAsItHasAreStartedByIt) {
  const Outcome flag = taken(kTwoMachines, "", {{"--num_machines", "2"}}, 4);
  EXPECT_EQ(flag.settings.text("launcher"), "slurm");
  EXPECT_EQ(flag.of("num_processes"), 8);
  EXPECT_EQ(flag.settings["num_machines"].source.where, "--num_machines");
  const Outcome file =
      taken(kTwoMachines, "distributed_type: MULTI_CPU\nnum_machines: 2\nnum_processes: 6\n");
  EXPECT_EQ(file.settings.text("launcher"), "slurm");
  EXPECT_EQ(file.of("num_processes"), 6);  // of both together
  EXPECT_EQ(file.sentence, "");
}

TEST(AllocationOfARun, MachinesThatItDoesNotHaveAreRefusedUnlessStartedByHand) {
  try {
    taken(kTwoMachines, "distributed_type: MULTI_CPU\nnum_machines: 3\nnum_processes: 6\n");
    ADD_FAILURE() << "nobody would start the third machine";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.message(), "num_machines is 3, but the allocation of SLURM has 2 machines");
    EXPECT_EQ(error.where(), "c.yaml:2");
  }
  EXPECT_THROW(taken(kTwoMachines, "", {{"--num_machines", "4"}}), ConfigError);
  for (const int machines : {2, 3}) {
    const Outcome by_hand = taken(
        kTwoMachines, "", {{"--num_machines", std::to_string(machines)}, {"--machine_rank", "1"}});
    EXPECT_EQ(by_hand.of("num_machines"), machines);
    EXPECT_EQ(by_hand.settings.text("launcher"), "");
  }
  // Machines with an allocation each.
  const Outcome joined = taken({.num_machines = 1}, "", {{"--num_machines", "2"}});
  EXPECT_EQ(joined.of("num_machines"), 2);
  EXPECT_EQ(joined.settings.text("launcher"), "");
}

TEST(AllocationOfARun, OnOneMachineTheFileSaysHowManyWorkers) {
  const Allocation one{.num_machines = 1, .num_processes = 8};
  EXPECT_EQ(taken(one, "").of("num_processes"), 8);
  EXPECT_EQ(taken(one, "distributed_type: MULTI_CPU\nnum_processes: 2\n").of("num_processes"), 2);
}

TEST(AllocationOfARun, WorkersThatMachinesCannotShareAreRefused) {
  EXPECT_THROW(taken(kTwoMachines, "", {{"--num_processes", "3"}}), ConfigError);
}

TEST(PlanOfARun, ZeroShowsAllAsInTorchrunAndNoneNothing) {
  const auto plan_of = [](std::vector<config::FlagValue> flags) {
    return make_launch_plan(config::resolve_settings({.flags = std::move(flags)}),
                            {.program = "true"});
  };
  const config::Setting* tee = config::find_setting("tee");
  const config::Setting* log_dir = config::find_setting("log_dir");
  EXPECT_FALSE(plan_of({{tee, "0", "--tee"}}).tee);
  EXPECT_FALSE(plan_of({{tee, "0", "--tee"}, {log_dir, "logs", "--log_dir"}}).tee);
  ASSERT_TRUE(plan_of({{tee, "none", "--tee"}}).tee);
  EXPECT_EQ(plan_of({{tee, "none", "--tee"}}).tee->streams_of(0), 0);
  EXPECT_TRUE(plan_of({{tee, "3", "--tee"}}).tee);
}

TEST(NoteOnGpus, SpeaksOnlyWhereSomeAreAskedForAndNoneCanBeUsed) {
  const auto note = [](std::vector<std::pair<std::string, std::string>> flags, int present,
                       int visible) {
    config::SettingsInput input{.gpus = visible};
    for (const auto& [flag, value] : flags) {
      input.flags.push_back({config::find_flag(flag), value, flag});
    }
    return note_on_gpus(config::resolve_settings(input), present, visible);
  };
  EXPECT_EQ(note({{"--num_processes", "2"}}, 0, 0), "");
  EXPECT_EQ(note({{"--multi_gpu", "true"}}, 2, 2), "");
  EXPECT_EQ(note({{"--multi_gpu", "true"}}, 2, 0),
            "CUDA_VISIBLE_DEVICES hides all GPUs of this machine, although --multi_gpu asks for "
            "some");
  EXPECT_EQ(note({{"--gpu_ids", "0,1"}}, 2, 0), "");  // it replaces that variable
  EXPECT_NE(note({{"--gpu_ids", "0,1"}}, 0, 0), "");
  EXPECT_EQ(note({{"--gpu_ids", "all"}}, 0, 0), "");
}

TEST(VisibleDevices, ThoseBeforeTheFirstThatIsNoneCount) {
  EXPECT_EQ(first_devices("3"), "3");
  EXPECT_EQ(first_devices("2, GPU-5ef,-1,0"), "2,GPU-5ef");
  EXPECT_EQ(first_devices(""), "");
  EXPECT_EQ(first_devices("-1"), "");
}

TEST(CommandLine, AFlagThatSwitchesOffIsInvertedByItsValue) {
  const auto value = [](const std::string& word) {
    return parse_launch_arguments({word, "./train"}).flags.front().text;
  };
  EXPECT_EQ(value("--no_tpu_cluster"), "false");
  EXPECT_EQ(value("--no_tpu_cluster=true"), "false");
  EXPECT_EQ(value("--no-tpu-cluster=no"), "true");
  EXPECT_EQ(value("--tpu_cluster=true"), "true");
  EXPECT_EQ(value("--no_tpu_cluster=perhaps"), "perhaps");
}

}  // namespace
}  // namespace accelerate::cli
