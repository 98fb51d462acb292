// What `accelerate launch` tells its workers, against what the reference does.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/commands/launch_command.h"
#include "config/given_settings.h"
#include "config/sharding/deepspeed_document.h"
#include "config/sharding/fsdp_plan.h"
#include "config/sharding/sharding_settings.h"
#include "config/worker_variables.h"
#include "golden/case_log.h"
#include "golden/config_json.h"
#include "golden/reference_data.h"
#include "launch/plan/command_line.h"
#include "launch/plan/worker_environment.h"
#include "launch/scratch_folder.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using Variables = std::map<std::string, std::string>;

// Runs in a folder of its own.
class LaunchEnvVectors : public ::testing::Test {
 protected:
  LaunchEnvVectors() {
    namespace fs = std::filesystem;
    before_ = fs::current_path();
    fs::current_path(folder_.path());
    path_ = std::getenv("PATH");
    setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
  }
  ~LaunchEnvVectors() override {
    setenv("PATH", path_.c_str(), 1);
    std::filesystem::current_path(before_);
  }
  // So that a program of that name is found.
  void write_program(const std::string& name) {
    folder_.write(name, "");
    std::filesystem::permissions(folder_.path() / name, std::filesystem::perms::owner_all);
  }

 private:
  ScratchFolder folder_;
  std::filesystem::path before_;
  std::string path_;
};

struct Launched {
  launch::LaunchPlan plan{};
  config::Settings settings{};
};

// The program and its arguments: those of the recorded command, as far as there is one.
std::vector<std::string> program_of(const json& recorded) {
  if (!recorded.contains("cmd") || recorded.at("cmd").is_null()) return {"train.py", "--lr", "1"};
  const std::vector<std::string> command = recorded.at("cmd");
  const auto program =
      std::ranges::find_if(command, [](const std::string& word) { return word.ends_with(".py"); });
  return {program, command.end()};
}

Launched launched(const json& recorded) {
  std::vector<std::string> words = recorded.at("argv");
  const std::vector<std::string> program = program_of(recorded);
  words.insert(words.end(), program.begin(), program.end());
  const cli::LaunchArguments arguments = cli::parse_launch_arguments(words);
  std::optional<config::ConfigFile> file;
  if (!recorded.at("config_yaml").is_null()) file = interpreted(recorded.at("config_yaml"));
  Launched result{.settings = config::resolve_settings(
                      {.flags = arguments.flags, .file = file ? &*file : nullptr})};
  result.plan = cli::make_launch_plan(result.settings, arguments);
  return result;
}

// What the launcher decides by rules of its own is not compared: an equal share of the cores where
// nobody names a number of threads, and Python's search path.
void leave_out_own_rules(const Launched& job, Variables& variables) {
  variables.erase("PYTHONPATH");
  if (!job.plan.num_cpu_threads_per_process) variables.erase("OMP_NUM_THREADS");
}

Variables expected_variables(const json& recorded) {
  Variables expected = recorded.at("env");
  if (!recorded.contains("upstream_bug")) return expected;
  // B10: what the reference accepts and drops.
  const std::vector<std::string> words = recorded.at("argv");
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "--offload_optimizer_nvme_path") {
      expected["ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH"] = words[i + 1];
    } else if (words[i] == "--offload_param_nvme_path") {
      expected["ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH"] = words[i + 1];
    } else if (words[i] == "--gradient_accumulation_steps") {
      expected["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = words[i + 1];
    }
  }
  return expected;
}

void compare_command(const json& recorded, const Launched& job, CaseLog& log) {
  if (!recorded.contains("cmd") || recorded.at("cmd").is_null()) return;
  std::vector<std::string> command = job.plan.command;
  if (command[0] == launch::find_python()) command[0] = "<python>";
  const std::string program = program_of(recorded).at(0);
  for (std::string& word : command) {
    if (word.ends_with("/" + program)) word = program;
  }
  log.expect_equal("command", command, recorded.at("cmd").get<std::vector<std::string>>());
}

void compare_torchrun(const json& recorded, const Launched& job, CaseLog& log) {
  if (!recorded.contains("torchrun_args")) return;
  const json& expected = recorded.at("torchrun_args");
  log.expect_equal<std::string>("processes", std::to_string(job.plan.processes_per_machine()),
                                expected.at("nproc_per_node"));
  if (expected.contains("max_restarts")) {
    log.expect_equal<int>("restarts", job.plan.max_restarts, expected.at("max_restarts"));
    log.expect_equal<int64_t>("interval", job.plan.monitor_interval.count(),
                              std::lround(1000 * expected.at("monitor_interval").get<double>()));
    log.expect_equal<std::string>("backend", job.settings.text("rdzv_backend"),
                                  expected.at("rdzv_backend"));
  }
}

bool is_to_be_refused(const json& recorded) {
  if (recorded.contains("error")) return true;
  if (!recorded.contains("upstream_bug")) return false;
  // B10: a mesh with version 1 of FSDP.
  const std::vector<std::string> words = recorded.at("argv");
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  return has("--use_parallelism_config") && has("--fsdp_version") && has("1");
}

TEST_F(LaunchEnvVectors, WorkersSeeTheVariablesOfTheReference) {
  const json all = load_vectors("launch_env.json");
  CaseLog log;
  for (const json& recorded : all.at("cases")) {
    json inputs = {{"argv", recorded.at("argv")}, {"config_yaml", recorded.at("config_yaml")}};
    log.run(inputs, [&] {
      write_program(program_of(recorded).at(0));
      std::optional<Launched> job;
      try {
        job = launched(recorded);
      } catch (const ConfigError& error) {
        if (!is_to_be_refused(recorded)) log.note(std::string("refused: ") + error.what());
        return;
      }
      if (is_to_be_refused(recorded)) return log.note("not refused");
      Variables variables = launch::setting_variables(job->plan);
      Variables expected = expected_variables(recorded);
      leave_out_own_rules(*job, variables);
      leave_out_own_rules(*job, expected);
      log.expect_equal("variables", variables, expected);
      compare_command(recorded, *job, log);
      compare_torchrun(recorded, *job, log);
    });
  }
  log.report();
}

config::GivenValues given_by(const Variables& variables) {
  return config::given_by_variables([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

// Nothing where it is refused. Notes tell where a value comes from, which differs.
std::optional<config::FsdpPlan> fsdp_outcome(const config::GivenValues& given) {
  try {
    config::FsdpPlan plan = config::fsdp_plan(given);
    for (std::string& note : plan.without_effect) note.resize(note.find(" ("));
    return plan;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

json deepspeed_outcome(const config::GivenValues& given) {
  if (const auto file = given("deepspeed_config_file")) return file->text;  // not recorded itself
  try {
    const config::DeepspeedDocument document = config::deepspeed_document(given);
    return {{"values", document.values}, {"shards at init", document.shards_at_init}};
  } catch (const ConfigError&) {
    return "refused";
  }
}

// What the launcher itself understands of a sharded run, and what its workers do by the recorded
// variables.
TEST_F(LaunchEnvVectors, WorkersUnderstandAShardedRunAsTheLauncherDoes) {
  const json all = load_vectors("launch_env.json");
  CaseLog log;
  int sharded = 0;
  int understood = 0;
  for (const json& recorded : all.at("cases")) {
    if (is_to_be_refused(recorded) || !recorded.contains("env")) continue;
    json inputs = {{"argv", recorded.at("argv")}, {"config_yaml", recorded.at("config_yaml")}};
    log.run(inputs, [&] {
      write_program(program_of(recorded).at(0));
      const config::Settings settings = launched(recorded).settings;
      const config::GivenValues given = config::given_settings(settings);
      const Variables variables = expected_variables(recorded);
      if (variables.contains("ACCELERATE_USE_FSDP")) {
        ++sharded;
        const auto plan = fsdp_outcome(given_by(variables));
        if (plan) ++understood;
        if (fsdp_outcome(given) != plan) log.note("the plans of FSDP differ");
      }
      if (variables.contains("ACCELERATE_USE_DEEPSPEED")) {
        ++sharded;
        const json outcome = deepspeed_outcome(given_by(variables));
        if (outcome != "refused") ++understood;
        log.expect_equal<json>("DeepSpeed's configuration", outcome, deepspeed_outcome(given));
      }
    });
  }
  log.report();
  if (sharded == 0) GTEST_SKIP() << "no run of the recording is sharded";
  EXPECT_GT(understood, 0) << "every sharded run was refused";
}

// B10: every accepted option reaches the process or is rejected.
TEST_F(LaunchEnvVectors, KnownReferenceBugsAreNotCopied) {
  write_program("train.py");
  const auto variables = [](const json& argv, const json& file = nullptr) {
    return launch::setting_variables(launched({{"argv", argv}, {"config_yaml", file}}).plan);
  };
  EXPECT_EQ(
      variables({"--gradient_accumulation_steps", "4"})["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"],
      "4");
  EXPECT_EQ(variables({"--use_megatron_lm", "--megatron_lm_use_custom_fsdp",
                       "False"})["MEGATRON_LM_USE_CUSTOM_FSDP"],
            "False");
  const json fp8 = {{"distributed_type", "NO"},
                    {"mixed_precision", "fp8"},
                    {"fp8_config",
                     {{"backend", "TE"},
                      {"amax_history_length", 16},
                      {"amax_compute_algorithm", "max"},
                      {"optimization_level", "O1"}}}};
  Variables told = variables(json::array(), fp8);
  EXPECT_EQ(told["ACCELERATE_FP8_BACKEND"], "TE");
  EXPECT_EQ(told["ACCELERATE_FP8_AMAX_HISTORY_LEN"], "16");
  EXPECT_EQ(told["ACCELERATE_FP8_AMAX_COMPUTE_ALGO"], "max");
  EXPECT_EQ(told["ACCELERATE_FP8_OPT_LEVEL"], "O1");
  EXPECT_THROW(variables({"--use_fsdp", "--fsdp_version", "1", "--use_parallelism_config"}),
               ConfigError);
}

}  // namespace
}  // namespace accelerate::test
