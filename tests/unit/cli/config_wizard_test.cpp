// What the wizard asks, and what it makes of the answers.
#include <gmock/gmock.h>
#include <signal.h>

#include <array>
#include <deque>

#include "cli/wizard/wizard_questions.h"
#include "config/config_file.h"
#include "config/schema.h"

namespace accelerate::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Answers in order; "" takes what is proposed. Notes what was asked.
class Script : public Prompter {
 public:
  explicit Script(std::deque<std::string> answers) : answers_(std::move(answers)) {}

  void tell(const std::string& sentence) override { told.push_back(sentence); }

  size_t choose(const std::string& question, const std::vector<std::string>& options,
                size_t preset) override {
    const std::string answer = next(question);
    offered.push_back(options);
    if (answer.empty()) return preset;
    for (size_t i = 0; i < options.size(); ++i) {
      if (options[i].starts_with(answer)) return i;
    }
    ADD_FAILURE() << question << " has no answer " << answer;
    return preset;
  }
  std::string ask(const std::string& question, const std::string& preset,
                  const std::function<std::string(const std::string&)>& complaint) override {
    while (true) {
      std::string answer = next(question);
      if (answer.empty()) answer = preset;
      const std::string problem = complaint ? complaint(answer) : "";
      if (problem.empty()) return answer;
      complaints.push_back(problem);
    }
  }

  std::vector<std::string> questions;
  std::vector<std::vector<std::string>> offered;  // to choose from
  std::vector<std::string> complaints;
  std::vector<std::string> told;
  bool is_used_up() const { return answers_.empty(); }

 private:
  std::string next(const std::string& question) {
    questions.push_back(question);
    if (answers_.empty()) throw Interrupted(SIGINT);
    const std::string answer = answers_.front();
    answers_.pop_front();
    return answer;
  }

  std::deque<std::string> answers_;
};

// A build that can do everything.
std::array<config::CapabilityRow, config::kCapabilities.size()> all_capabilities() {
  auto rows = config::kCapabilities;
  for (config::CapabilityRow& row : rows) row.is_in_this_build = true;
  return rows;
}

std::string text_of(const config::FileNode& document, const std::string& key) {
  const config::FileNode* node = document.find(key);
  return node == nullptr ? "(none)" : node->text;
}

TEST(Wizard, AsksTwoQuestionsOnAMachineWithoutGpus) {
  Script script({"", "bf16"});
  const config::FileNode document = ask_configuration(script, {.gpus = 0, .cores = 2});
  EXPECT_THAT(script.questions, ElementsAre("What do you train on?", "Mixed precision?"));
  EXPECT_EQ(text_of(document, "distributed_type"), "NO");
  EXPECT_EQ(text_of(document, "use_cpu"), "true");
  EXPECT_EQ(text_of(document, "num_processes"), "1");
  EXPECT_EQ(text_of(document, "mixed_precision"), "bf16");
}

TEST(Wizard, ProposesWhatTheMachineHas) {
  Script script({"", "", "", "", "", "", "", ""});
  const config::FileNode document = ask_configuration(script, {.gpus = 4, .cores = 8});
  EXPECT_TRUE(script.is_used_up());
  EXPECT_EQ(text_of(document, "distributed_type"), "MULTI_GPU");
  EXPECT_EQ(text_of(document, "num_processes"), "4");
  EXPECT_EQ(text_of(document, "gpu_ids"), "all");
  EXPECT_EQ(text_of(document, "main_process_ip"), "(none)");
}

TEST(Wizard, AsksForTheMeetingPlaceOnlyWithSeveralMachines) {
  Script script({"several processes on CPUs", "2", "2", "1", "", "10.0.0.1", "", "no", "no", "",
                 "7", "8", "", ""});
  const config::FileNode document = ask_configuration(script, {.gpus = 0, .cores = 8});
  EXPECT_THAT(script.complaints,
              ElementsAre("With 2 machines the last one is 1.", "An answer is needed.",
                          "It must be a multiple of 2, the number of machines."));
  EXPECT_EQ(text_of(document, "machine_rank"), "1");
  EXPECT_EQ(text_of(document, "main_process_ip"), "10.0.0.1");
  EXPECT_EQ(text_of(document, "main_process_port"), "29500");
  EXPECT_EQ(text_of(document, "same_network"), "false");
  EXPECT_EQ(text_of(document, "num_processes"), "8");
}

TEST(Wizard, RefusesAsTheSchemaDoes) {
  Script script({"several processes on CPUs", "many", "1", "", "", "0", "2", "", ""});
  ask_configuration(script, {.gpus = 0, .cores = 2});
  EXPECT_THAT(script.complaints, ElementsAre(HasSubstr("num_machines cannot be 'many'"),
                                             HasSubstr("num_processes cannot be '0'")));
}

TEST(Wizard, WhatThisBuildCannotDoIsNotOffered) {
  auto none = config::kCapabilities;
  for (config::CapabilityRow& row : none) row.is_in_this_build = false;
  Script script({"several GPUs", "1", "2", "no", "", "", "fp16"});
  ask_configuration(script, {.gpus = 2, .cores = 8, .capabilities = none});
  EXPECT_THAT(script.questions, Not(Contains(HasSubstr("distributed over"))));
  EXPECT_THAT(script.offered.back(), ElementsAre("no", "fp16", "bf16"));

  auto rows = all_capabilities();
  for (config::CapabilityRow& row : rows) {
    if (row.capability == config::Capability::kDeepspeed) row.is_in_this_build = false;
  }
  Script fsdp({"several GPUs", "1", "", "", "", "", "", "fp8"});
  ask_configuration(fsdp, {.gpus = 2, .cores = 8, .capabilities = rows});
  EXPECT_THAT(fsdp.offered, Contains(ElementsAre("every process holds the whole model",
                                                 "sharded, as FSDP calls it")));
}

TEST(Wizard, KeepsTheChoicesOfSharding) {
  const auto rows = all_capabilities();
  Script fsdp({"several GPUs", "1", "sharded, as FSDP", "", "", "SIZE", "1000", "", "", "", "", "",
               "", "", ""});
  const config::FileNode document =
      ask_configuration(fsdp, {.gpus = 2, .cores = 8, .capabilities = rows});
  EXPECT_EQ(text_of(document, "distributed_type"), "FSDP");
  const config::FileNode* map = document.find("fsdp_config");
  ASSERT_NE(map, nullptr);
  EXPECT_EQ(text_of(*map, "fsdp_version"), "2");
  EXPECT_EQ(text_of(*map, "fsdp_min_num_params"), "1000");

  Script deepspeed({"several GPUs", "1", "sharded, as DeepSpeed", "", "parameters", "nvme", "cpu",
                    "/disk", "", "", "", "", "", "", "", ""});
  const config::FileNode zero =
      ask_configuration(deepspeed, {.gpus = 2, .cores = 8, .capabilities = rows});
  EXPECT_EQ(text_of(zero, "distributed_type"), "DEEPSPEED");
  ASSERT_NE(zero.find("deepspeed_config"), nullptr);
  EXPECT_EQ(text_of(*zero.find("deepspeed_config"), "offload_optimizer_nvme_path"), "/disk");
}

TEST(Wizard, ShardsAreOfferedOnCpusTooWithWhatThisBuildHasOfThem) {
  Script deepspeed({"several processes on CPUs", "1", "no", "sharded, as DeepSpeed", "",
                    "parameters", "2", "", "no", "4", "", "bf16"});
  const config::FileNode zero = ask_configuration(deepspeed, {.gpus = 0, .cores = 8});
  EXPECT_TRUE(deepspeed.is_used_up());
  EXPECT_EQ(text_of(zero, "distributed_type"), "DEEPSPEED");
  EXPECT_EQ(text_of(zero, "use_cpu"), "true");
  EXPECT_EQ(text_of(*zero.find("deepspeed_config"), "zero_stage"), "3");
  EXPECT_THAT(deepspeed.questions, Not(Contains(HasSubstr("kept"))));

  Script fsdp({"several processes on CPUs", "1", "no", "sharded, as FSDP", "", "", "", "", "", "4",
               "", "bf16"});
  const config::FileNode document = ask_configuration(fsdp, {.gpus = 0, .cores = 8});
  EXPECT_TRUE(fsdp.is_used_up());
  EXPECT_EQ(text_of(document, "distributed_type"), "FSDP");
  EXPECT_EQ(document.find("fsdp_config")->find("fsdp_offload_params"), nullptr);
}

TEST(Wizard, NumbersOfShardingAreThoseOfTheSchema) {
  const auto rows = all_capabilities();
  Script deepspeed({"several GPUs", "1", "sharded, as DeepSpeed", "", "optimizer", "0", "+-0", "+4",
                    "", "", "", "", ""});
  const config::FileNode zero =
      ask_configuration(deepspeed, {.gpus = 2, .cores = 8, .capabilities = rows});
  EXPECT_THAT(deepspeed.complaints,
              ElementsAre(HasSubstr("gradient_accumulation_steps cannot be '0'"),
                          HasSubstr("gradient_accumulation_steps cannot be '+-0'")));
  EXPECT_EQ(text_of(*zero.find("deepspeed_config"), "gradient_accumulation_steps"), "4");
}

TEST(Wizard, GpusAreNumbersAndEnoughOfThem) {
  Script script({"several GPUs", "1", "", "", "", ",", "0,", "1", "0,1", "", ""});
  const config::FileNode document = ask_configuration(script, {.gpus = 2, .cores = 8});
  EXPECT_THAT(script.complaints, ElementsAre("Numbers separated by commas, or all.",
                                             "Numbers separated by commas, or all.",
                                             "At least two, for several GPUs."));
  EXPECT_EQ(text_of(document, "gpu_ids"), "0,1");
}

TEST(Wizard, EveryPrecisionOfTheSchemaIsOfferedIfTheBuildCanDoIt) {
  const auto rows = all_capabilities();
  for (const std::string_view precision : config::find_setting("mixed_precision")->choices) {
    Script script({"", std::string(precision)});
    EXPECT_EQ(text_of(ask_configuration(script, {.capabilities = rows}), "mixed_precision"),
              precision);
  }
}

TEST(Wizard, GpusThatThereAreNotAreMissedAloud) {
  Script here({"several GPUs", "", "", "", "", ""});
  EXPECT_EQ(text_of(ask_configuration(here, {.gpus = 0, .cores = 8}), "distributed_type"),
            "MULTI_GPU");
  EXPECT_THAT(here.told, ElementsAre("No NVIDIA GPU was found on this machine: accelerate "
                                     "launch will refuse to start here."));
  Script there({"several GPUs", "", "", "", "", "", "", ""});
  ask_configuration(there, {.gpus = 2, .cores = 8});
  EXPECT_THAT(there.told, ElementsAre());
}

TEST(Wizard, AnInterruptComesThrough) {
  Script script({"several GPUs"});
  EXPECT_THROW(ask_configuration(script, {.gpus = 2, .cores = 8}), Interrupted);
}

}  // namespace
}  // namespace accelerate::cli
