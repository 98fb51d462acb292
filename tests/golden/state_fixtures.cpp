// Directories that the Python library's save_state has written, loaded and trained on.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <deque>
#include <set>

#include "golden/case_log.h"
#include "golden/recorded_arguments.h"
#include "golden/recorded_schedules.h"
#include "golden/recorded_states.h"
#include "golden/reference_data.h"
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr Tolerance kResumed{.absolute = 1e-5, .relative = 1e-5};
constexpr Tolerance kLoadedRates{.relative = 1e-9};

struct StateFixtures : Ranks {};

// As the float that the shortest decimal stands for.
std::vector<double> floats_of(const json& values) {
  std::vector<double> all;
  for (const double value : recorded_numbers(values)) all.push_back(static_cast<float>(value));
  return all;
}

// {"0.weight": {"shape": [...], "values": [...]}, ...}
void expect_weights(CaseLog& log, torch::nn::Module& module, const json& weights,
                    Tolerance tolerance) {
  const auto parameters = module.named_parameters();
  log.expect_equal("number of weights", parameters.size(), weights.size());
  for (const auto& item : parameters) {
    log.expect_near(item.key(), flat({item.value()}),
                    floats_of(weights.at(item.key()).at("values")), tolerance);
  }
}

// One rate, or one for each group.
std::vector<double> rates_in(const json& recorded) {
  return recorded.is_array() ? recorded_numbers(recorded)
                             : std::vector<double>{recorded_number(recorded)};
}

// {"torch_rand5": [...], "torch_randperm10": [...], ...} in the order in which they were drawn.
void expect_random_numbers(CaseLog& log, const ordered_json& recorded) {
  int drawn = 0;
  for (const auto& [name, numbers] : recorded.items()) {
    const at::Tensor own = draw_as_recorded(name);
    if (!own.defined()) continue;
    log.expect_near(name, flat({own}), recorded_numbers(json(numbers)), {.absolute = 1e-6});
    ++drawn;
  }
  if (drawn == 0) log.note("no random numbers are recorded");
}

// A scheduler of another kind would keep other entries.
void expect_entries(CaseLog& log, const PreparedScheduler& scheduler, const json& recorded) {
  std::set<std::string> own, expected;
  const StateDict state = scheduler.state_dict();
  for (const auto& [name, value] : state.entries()) own.insert(name);
  for (const auto& [name, value] : recorded.items()) expected.insert(name);
  log.expect_equal("entries of the scheduler", own, expected);
}

double norm_of_gradients(torch::nn::Module& module) {
  std::vector<at::Tensor> norms;
  for (const at::Tensor& parameter : module.parameters()) norms.push_back(parameter.grad().norm());
  return torch::stack(norms).norm().item<double>();
}

void load_and_go_on(CaseLog& log, const RecordedState& state) {
  const json& recorded = state.expected;
  Accelerator accelerator(on_cpu());
  auto net = std::make_shared<RecordedNetwork>(state.weights(), recorded.at("model"), true);
  const auto made = optimizer_for_state(recorded.at("optimizer_bin"), net->parameters());
  Scheduler schedule = recorded_scheduler(recorded.at("scheduler"), *made);
  auto [model, optimizer, scheduler] = accelerator.prepare(net, *made, schedule);
  accelerator.load_state(state.folder);
  expect_weights(log, *net, recorded.at("weights"), {});
  log.expect_near("lr", scheduler.last_lr(), rates_in(recorded.at("lr")), kLoadedRates);
  const int64_t steps = steps_of_state(recorded.at("optimizer_bin"));
  log.expect_equal("steps", optimizer.step_count(), steps);
  expect_random_numbers(log, state.ordered.at("random_numbers_after_load_state"));
  const json& after = recorded.at("after_resume");
  const json& batches = recorded.at("next_batches");
  if (batches.empty()) log.note("no batch is recorded");
  for (size_t i = 0; i < batches.size(); ++i) {
    const at::Tensor loss = net->loss(model(recorded_rows(batches.at(i).at("x"))),
                                      recorded_rows(batches.at(i).at("y")));
    accelerator.backward(loss);
    const std::string step = " of step " + std::to_string(i);
    if (is_given(after, "grad_norm")) {
      log.expect_near("norm of the gradients" + step, {norm_of_gradients(*net)},
                      {recorded_number(after.at("grad_norm").at(i))}, kResumed);
    }
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
    log.expect_near("loss" + step, {loss.item<double>()}, {recorded_number(after.at("loss").at(i))},
                    kResumed);
    log.expect_near("rate after" + step, scheduler.last_lr(), rates_in(after.at("lr_after").at(i)),
                    kLoadedRates);
  }
  log.expect_equal("steps at the end", optimizer.step_count(),
                   steps + static_cast<int64_t>(batches.size()));
  expect_weights(log, *net, after.at("weights_after"), kResumed);
}

TEST_F(StateFixtures, TrainingGoesOnAsRecorded) {
  const auto states = recorded_states([](const json& e) { return e.contains("after_resume"); });
  for (const RecordedState& state : states) {
    run(1, [&](const Rank&) {
      CaseLog log;
      log.run(state.name, [&] { load_and_go_on(log, state); });
      log.report();
    });
  }
}

struct StateRecorder {
  StateDict state{};
  StateDict state_dict() const { return state; }
  void load_state_dict(const StateDict& loaded) { state = loaded; }
};

// A value of a registered object, in the words of the recordings.
void expect_value(CaseLog& log, const std::string& where, const StateValue& own,
                  const json& recorded) {
  if (recorded.is_object() && recorded.contains("values")) {
    log.expect_near(where, flat({own.as_tensor()}), recorded_numbers(recorded.at("values")), {});
  } else if (recorded.is_object()) {
    for (const auto& [key, value] : recorded.items()) {
      expect_value(log, where + "." + key, own.as_dict().at(key), value);
    }
  } else if (recorded.is_array()) {
    log.expect_equal("length of " + where, own.as_list().size(), recorded.size());
    for (size_t i = 0; i < std::min(recorded.size(), own.as_list().size()); ++i) {
      expect_value(log, where + "[" + std::to_string(i) + "]", own.as_list()[i], recorded[i]);
    }
  } else if (recorded.is_null()) {
    log.expect_equal(where + " is null", own.is_null(), true);
  } else if (recorded.is_boolean()) {
    log.expect_equal(where, own.as_bool(), recorded.get<bool>());
  } else if (recorded.is_string()) {
    log.expect_equal(where, own.as_string(), recorded.get<std::string>());
  } else {
    log.expect_equal(where, own.as_number(), recorded.get<double>());
  }
}

// The entry of the first object is "optimizer_bin", of the second "optimizer_1_bin".
std::string entry_of(const std::string& kind, size_t index, const std::string& ending) {
  return kind + (index == 0 ? "" : "_" + std::to_string(index)) + ending;
}

// Any number of models, each with an optimizer, a scheduler, and registered objects.
void load_several(CaseLog& log, const RecordedState& state) {
  const json& recorded = state.expected;
  Accelerator accelerator(on_cpu());
  std::vector<std::shared_ptr<RecordedNetwork>> nets;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> made;
  std::vector<PreparedOptimizer> optimizers;
  std::vector<PreparedScheduler> schedulers;
  std::deque<StateRecorder> objects;
  for (size_t i = 0; !state.weights(i).is_null(); ++i) {
    nets.push_back(std::make_shared<RecordedNetwork>(state.weights(i), "", true));
    accelerator.prepare(nets.back());
  }
  for (size_t i = 0; recorded.contains(entry_of("optimizer", i, "_bin")); ++i) {
    made.push_back(optimizer_for_state(recorded.at(entry_of("optimizer", i, "_bin")),
                                       nets.at(i)->parameters()));
    optimizers.push_back(accelerator.prepare(*made.back()));
  }
  for (size_t i = 0; recorded.contains(entry_of("scheduler", i, "_bin")); ++i) {
    const Schedule schedule = schedule_of_state(recorded.at(entry_of("scheduler", i, "_bin")));
    schedulers.push_back(accelerator.prepare(Scheduler(*made.at(i), schedule)));
  }
  const auto object_entry = [](size_t i) {
    return "custom_checkpoint_" + std::to_string(i) + "_pkl";
  };
  while (recorded.contains(object_entry(objects.size()))) {
    accelerator.register_for_checkpointing(objects.emplace_back());
  }
  accelerator.load_state(state.folder);

  for (size_t i = 0; i < nets.size(); ++i) {
    expect_weights(log, *nets[i], json(state.weights(i)), {});
  }
  for (size_t i = 0; i < optimizers.size(); ++i) {
    const json& saved = recorded.at(entry_of("optimizer", i, "_bin"));
    log.expect_equal("steps", optimizers[i].step_count(), steps_of_state(saved));
    log.expect_equal("parameters with a state", made[i]->state().size(), saved.at("state").size());
  }
  for (size_t i = 0; i < schedulers.size(); ++i) {
    log.expect_near("rates of scheduler " + std::to_string(i), schedulers[i].last_lr(),
                    rates_in(recorded.at("lr").at(i)), kLoadedRates);
    expect_entries(log, schedulers[i], recorded.at(entry_of("scheduler", i, "_bin")));
  }
  for (size_t i = 0; i < objects.size(); ++i) {
    expect_value(log, object_entry(i), objects[i].state, recorded.at(object_entry(i)));
  }
}

TEST_F(StateFixtures, SeveralModelsAndRegisteredObjectsComeBack) {
  const auto states = recorded_states([](const json& e) { return e.contains("weights_1"); });
  for (const RecordedState& state : states) {
    run(1, [&](const Rank&) {
      CaseLog log;
      log.run(state.name, [&] { load_several(log, state); });
      log.report();
    });
  }
}

// {"torch_rand4_after_load_state_per_rank": [[...], [...]]}
void expect_own_random_numbers(CaseLog& log, const RecordedState& state, size_t rank) {
  const std::string ending = "_after_load_state_per_rank";
  ordered_json own = ordered_json::object();
  for (const auto& [name, of_ranks] : state.ordered.items()) {
    if (!name.ends_with(ending)) continue;
    own[name.substr(0, name.size() - ending.size())] = of_ranks.at(rank);
  }
  expect_random_numbers(log, own);
}

TEST_F(StateFixtures, RanksGoOnWithTheirOwnRandomNumbers) {
  const auto states =
      recorded_states([](const json& e) { return e.value("num_processes", 1) > 1; });
  for (const RecordedState& state : states) {
    const json& recorded = state.expected;
    run(recorded.at("num_processes"), [&](const Rank& rank) {
      Accelerator accelerator(on_cpu());
      auto net = std::make_shared<RecordedNetwork>(state.weights(), "", true);
      const auto made = optimizer_for_state(recorded.at("optimizer_bin"), net->parameters());
      Scheduler schedule(*made, schedule_of_state(recorded.at("scheduler_bin")));
      auto [model, optimizer, scheduler] = accelerator.prepare(net, *made, schedule);
      accelerator.load_state(state.folder);
      CaseLog log;
      log.run(state.name, [&] {
        expect_weights(log, *net, recorded.at("weights"), {});
        log.expect_near("lr", scheduler.last_lr(), rates_in(recorded.at("lr")), kLoadedRates);
        expect_entries(log, scheduler, recorded.at("scheduler_bin"));
        expect_own_random_numbers(log, state, static_cast<size_t>(rank.rank));
      });
      log.report();
    });
  }
}

TEST_F(StateFixtures, TiedWeightsAreLoadedFromTheOneNameInTheFile) {
  const auto states = recorded_states(
      [](const json& e) { return e.contains("tied") && e.value("how", "") == "save_state"; });
  for (const RecordedState& state : states) {
    run(1, [&](const Rank&) {
      const json& recorded = state.expected;
      const ModelStateDict saved = load_state_dict(state.folder / "model.safetensors");
      const auto dropped = recorded.at("dropped").get<std::set<std::string>>();
      std::string kept;  // of the names that are tied, the one in the file
      std::set<std::string> tied;
      for (const std::string name : recorded.at("tied")) {
        tied.insert(name);
        if (!dropped.contains(name)) kept = name;
      }
      auto net = std::make_shared<NamedTensorModule>();
      const at::Tensor one = torch::zeros(saved[kept].sizes());
      for (const std::string key : recorded.at("state_dict_keys")) {
        net->put(key, tied.contains(key) ? one : torch::zeros(saved[key].sizes()));
      }
      Accelerator accelerator(on_cpu());
      auto model = accelerator.prepare(net);
      accelerator.load_state(state.folder);
      const ModelStateDict own = get_state_dict(*net);
      EXPECT_FALSE(dropped.empty());
      for (const std::string& name : dropped) EXPECT_TRUE(own[name].equal(saved[kept])) << name;
      for (const auto& item : saved) EXPECT_TRUE(own[item.key()].equal(item.value())) << item.key();
    });
  }
}

}  // namespace
}  // namespace accelerate::test
