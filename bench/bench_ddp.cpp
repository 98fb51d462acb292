// Data-parallel training with the library against the same training written by hand on c10d's
// reducer. To be started on two processes by `accelerate launch --cpu --num_processes 2`.
#include <CLI/CLI.hpp>

#include "comm/groups/process_group.h"
#include "main.h"
#include "paired_times.h"
#include "reducer_loop.h"
#include "report.h"
#include "training_loop.h"

namespace bench {
namespace {

struct Settings {
  std::string loop = "both";  // or "prepared" or "hand"
  Task task;
  int rounds = 18;
  int pairs = 20;
  int steps = 300;
};

void barrier(const c10::intrusive_ptr<c10d::ProcessGroup>& group) { group->barrier()->wait(); }

// All loops in turns, each on connections of its own. The hand-written loop is also measured
// against a second one of its kind: the noise of the method.
nlohmann::json compare_in_turns(const Settings& settings) {
  PairedTimes prepared_times;
  PairedTimes control_times;
  const Place place = Place::from_environment();
  for (int round = 0; round < settings.rounds; ++round) {
    accelerate::Accelerator accelerator({.cpu = true});
    const auto store = accelerate::comm::process_group_of(accelerator.communicator())->getStore();
    const auto group = [&](const char* name) {
      return open_gloo(c10::make_intrusive<c10d::PrefixStore>(name, store), place);
    };
    const auto hand_group = group("hand");
    const auto control_group = group("control");
    std::optional<PreparedLoop> prepared;
    std::optional<ReducerLoop> hand;
    std::optional<ReducerLoop> control;
    make_in_changing_order({[&] { prepared.emplace(accelerator, settings.task); },
                            [&] { hand.emplace(hand_group, settings.task); },
                            [&] { control.emplace(control_group, settings.task); }},
                           round);
    for (TrainingLoop* loop : std::initializer_list<TrainingLoop*>{&*prepared, &*hand, &*control}) {
      warm_up(*loop);
      require_equal_parameters(*loop, *prepared);
    }
    const auto align = [&] { barrier(hand_group); };
    prepared_times.measure(*prepared, *hand, settings.pairs, align);
    control_times.measure(*control, *hand, settings.pairs, align);
    align();
  }
  return {{"name", "prepared data-parallel loop against hand-written reducer loop"},
          {"prepared_against_hand", prepared_times.report()},
          {"hand_against_hand", control_times.report()}};
}

// One loop that has the processes to itself.
nlohmann::json run_alone(TrainingLoop& loop, const Settings& settings) {
  warm_up(loop);
  const double loss = loop.loss();
  std::vector<double> seconds;
  time_steps(loop, settings.steps, seconds);
  return {{"name", settings.loop + " data-parallel loop"},
          {"loss_after_warm_up", loss},
          {"step", summary(seconds)}};
}

nlohmann::json run(const Settings& settings) {
  if (settings.loop == "both") return compare_in_turns(settings);
  if (settings.loop == "prepared") {
    accelerate::Accelerator accelerator({.cpu = true});
    PreparedLoop loop(accelerator, settings.task);
    return run_alone(loop, settings);
  }
  const Place place = Place::from_environment();
  const auto group = open_gloo(open_store(place), place);
  ReducerLoop loop(group, settings.task);
  nlohmann::json results = run_alone(loop, settings);
  barrier(group);
  return results;
}

int main(int argc, char** argv) {
  Settings settings;
  int threads = 1;
  std::string json_file;
  CLI::App app("Times prepared data-parallel training against a hand-written reducer loop");
  app.add_option("--loop", settings.loop, "both in turns, or one: prepared or hand")
      ->check(CLI::IsMember({"both", "prepared", "hand"}));
  app.add_option("--optimizer", settings.task.optimizer, "sgd or adamw")
      ->check(CLI::IsMember({"sgd", "adamw"}));
  app.add_option("--hidden", settings.task.hidden, "Width of the hidden layers");
  app.add_option("--batch_size", settings.task.batch_size, "Samples of a step on each rank");
  app.add_option("--threads", threads, "Threads of torch on each rank");
  app.add_option("--rounds", settings.rounds, "How often models and groups are created again");
  app.add_option("--pairs", settings.pairs, "Comparisons in a round");
  app.add_option("--steps", settings.steps, "Steps of a loop that runs alone");
  app.add_option("--json", json_file, "File for the results of rank 0");
  CLI11_PARSE(app, argc, argv);

  torch::set_num_threads(threads);
  nlohmann::json results = run(settings);
  results["optimizer"] = settings.task.optimizer;
  results["hidden"] = settings.task.hidden;
  results["batch_size"] = settings.task.batch_size;
  const Place place = Place::from_environment();
  results["world_size"] = place.world_size;
  if (place.rank == 0) publish(results, argc, argv, json_file);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run_main("bench_ddp", bench::main, argc, argv); }
