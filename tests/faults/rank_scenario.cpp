// The scenarios of save_state(). The weights of checkpoint n and the number of its object are all
// n, so that a mix of two would show.
#include "rank_scenario.h"

#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <fstream>
#include <set>
#include <stdexcept>

#include "files/manifest/checkpoint_directory.h"
#include "support/parameter_values.h"

namespace faults {
namespace {

using accelerate::Accelerator;
using std::filesystem::path;

constexpr const char* kLeftover = ".checkpoint_2.tmp-0123456789abcdef";  // of an earlier crash

struct Counter {
  int64_t number = 0;
  accelerate::StateDict state_dict() const { return {{"number", number}}; }
  void load_state_dict(const accelerate::StateDict& state) {
    number = state.at("number").as_integer();
  }
};

// A small one with all kinds of files.
struct Training {
  explicit Training(const accelerate::ProjectOptions& project)
      : accelerator({.cpu = true,
                     .project = project,
                     .process_group = {.timeout = std::chrono::seconds(60)}}),
        sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)) {
    for (at::Tensor& parameter : net->parameters()) {
      parameter.mutable_grad() = torch::zeros_like(parameter);
    }
    sgd.step();  // so that there is momentum to be saved
    model.emplace(accelerator.prepare(net));
    optimizer.emplace(accelerator.prepare(sgd));
    auto schedule =
        accelerate::get_scheduler("linear", sgd, {.warmup_steps = 0, .training_steps = 100});
    scheduler.emplace(accelerator.prepare(schedule));
    auto batches = accelerate::data_loader(
        accelerate::TensorDataset(torch::arange(12), torch::arange(12)), {.batch_size = 2});
    loader.emplace(accelerator.prepare(batches));
    accelerator.register_for_checkpointing(counter);
  }

  void become(int64_t number) {
    accelerate::test::fill_parameters(*net, number);
    counter.number = number;
  }
  bool is(int64_t number) const {
    return accelerate::test::parameters_are(*net, number) && counter.number == number;
  }

  using Batches = decltype(accelerate::data_loader(
      accelerate::TensorDataset(torch::arange(12), torch::arange(12)), {.batch_size = 2}));
  Accelerator accelerator;
  torch::nn::Linear net{torch::nn::LinearOptions(16, 16)};
  torch::optim::SGD sgd;
  Counter counter;
  // What nobody holds is not saved.
  std::optional<decltype(std::declval<Accelerator&>().prepare(net))> model;
  std::optional<accelerate::PreparedOptimizer> optimizer;
  std::optional<accelerate::PreparedScheduler> scheduler;
  std::optional<decltype(std::declval<Accelerator&>().prepare(std::declval<Batches&>()))> loader;
};

// The numbers of the checkpoints in a folder. Each of them must be complete to the last byte.
std::set<int64_t> numbers_in(const path& folder) {
  std::set<int64_t> numbers;
  for (const auto& entry : accelerate::files::list_checkpoints(folder)) {
    require(entry.is_complete(), entry.name + " is visible but not complete: " + entry.problem);
    require(accelerate::files::verify(entry.directory).empty(), entry.name + " is damaged");
    require(entry.number.has_value(), entry.name + " is none of the series");
    numbers.insert(*entry.number);
  }
  return numbers;
}

// Checkpoints 0 and 1 are there, two may stay, and a crashed save has left something: saves number
// 2, which lets number 0 go.
class Numbered : public Scenario {
 public:
  explicit Numbered(bool async) : async_(async) {}

  void prepare(const path& folder) const override {
    Training training(project(folder));
    for (const int64_t number : {0, 1}) {
      training.become(number);
      training.accelerator.save_state();
    }
    if (!training.accelerator.is_local_main_process()) return;
    const path leftover = project(folder).project_dir / "checkpoints" / kLeftover;
    std::filesystem::create_directory(leftover);
    std::ofstream(leftover / "model.safetensors") << "half of a mod";
  }

  void save(const path& folder, const std::function<void()>& arm) const override {
    Training training(project(folder));
    training.accelerator.set_save_iteration(2);
    training.become(2);
    arm();
    const accelerate::SaveTicket ticket = training.accelerator.save_state({}, {.async = async_});
    training.become(77);  // what training does meanwhile is not saved
    ticket.wait();
  }

  void check(const path& folder, const Outcome& outcome) const override {
    check_folder(folder / "checkpoints", outcome);
    require_tidy(folder, outcome, kLeftover);
    Training training(project(folder));
    go_on(training, folder / "checkpoints", *numbers_in(folder / "checkpoints").rbegin());
  }

 protected:
  virtual accelerate::ProjectOptions project(const path& folder) const {
    return {.project_dir = folder, .automatic_checkpoint_naming = true, .total_limit = 2};
  }

  static void check_folder(const path& checkpoints, const Outcome& outcome) {
    const std::set<int64_t> numbers = numbers_in(checkpoints);
    const std::set<int64_t> before{0, 1}, after{1, 2}, unrotated{0, 1, 2};
    const bool is_new = numbers == after || numbers == unrotated;
    require(numbers == before || is_new, "the folder holds other checkpoints than it should");
    if (outcome.saved) require(is_new, "the checkpoint that was saved is not there");
    if (outcome.kind == Outcome::Kind::kFailed) {
      require(numbers == before, "a save that failed has changed what was there");
    }
    // What could not be read counts as incomplete this once: it is neither counted nor touched.
    const bool unread = outcome.hit.starts_with("open ") || outcome.hit.starts_with("read ");
    if (outcome.kind == Outcome::Kind::kSaved && !outcome.untidy && !unread) {
      require(numbers == after, "the oldest was not deleted");
    }
  }

  // Whatever happened, the next run goes on from `newest` and leaves the folder tidy.
  static void go_on(Training& training, const path& checkpoints, int64_t newest) {
    training.accelerator.load_state();
    require(training.is(newest), "the newest checkpoint was not loaded, or is a mix");
    const int64_t next = training.accelerator.save_iteration();
    training.become(next);
    training.accelerator.save_state();
    if (training.accelerator.is_local_main_process()) {
      require_tidy(checkpoints, {});
      const std::set<int64_t> numbers = numbers_in(checkpoints);
      require(numbers.size() == 2 && *numbers.rbegin() == next, "the next one and one other stay");
    }
    training.accelerator.wait_for_everyone();
  }

 private:
  bool async_;
};

// The same where each node has a folder of its own: whatever happens, all of them can go on from
// one checkpoint that they have in common.
class EachNode : public Numbered {
 public:
  EachNode() : Numbered(false) {}
  Nodes nodes() const override { return Nodes::kOneEach; }

  void check(const path& folder, const Outcome& outcome) const override {
    std::vector<std::set<int64_t>> of_nodes;
    for (const std::string node : {"0", "1"}) {
      check_folder(folder / node / "checkpoints", outcome);
      of_nodes.push_back(numbers_in(folder / node / "checkpoints"));
    }
    // A node may have one that the other lost before it was visible there.
    const int64_t newest = std::min(*of_nodes[0].rbegin(), *of_nodes[1].rbegin());
    require_tidy(folder, outcome, kLeftover);
    const auto ends =
        run_ranks(2, nodes(), folder.string() + ".check", std::chrono::seconds(30), [&](int rank) {
          Training training(project(folder));
          go_on(training, folder / std::to_string(rank) / "checkpoints", newest);
          return 0;
        });
    std::string said;
    for (const RankEnd& end : ends) said += end.exit_code() == 0 ? "" : "\n" + end.output;
    require(said.empty(), "the next run ended with" + said);
    for (const char* rank : {".0", ".1"})
      std::filesystem::remove(folder.string() + ".check" + rank);
  }

 protected:
  accelerate::ProjectOptions project(const path& folder) const override {
    accelerate::ProjectOptions options = Numbered::project(folder);
    const char* node = getenv("GROUP_RANK");
    options.project_dir = folder / (node == nullptr ? "0" : node);
    options.save_on_each_node = true;
    return options;
  }
};

// Replaces the checkpoint `latest`.
class Latest : public Scenario {
 public:
  void prepare(const path& folder) const override {
    save_as(folder, 1, [] {});
  }
  void save(const path& folder, const std::function<void()>& arm) const override {
    save_as(folder, 2, arm);
  }

  void check(const path& folder, const Outcome& outcome) const override {
    require(accelerate::files::verify(folder / "latest").empty(), "the checkpoint is damaged");
    require_tidy(folder, outcome);
    Training training(accelerate::ProjectOptions{});
    training.accelerator.load_state(folder / "latest");
    const bool is_new = training.is(2);
    require(is_new || training.is(1), "the checkpoint is a mix of the two");
    if (outcome.saved) require(is_new, "what was saved is not there");
    if (outcome.kind == Outcome::Kind::kFailed) {
      require(!is_new, "a save that failed has replaced what was there");
    }
    training.become(3);
    training.accelerator.save_state(folder / "latest");
    require_tidy(folder, {});
    require(accelerate::files::verify(folder / "latest").empty(), "the next one is damaged");
  }

 private:
  static void save_as(const path& folder, int64_t number, const std::function<void()>& arm) {
    Training training(accelerate::ProjectOptions{});
    training.become(number);
    arm();
    training.accelerator.save_state(folder / "latest");
  }
};

}  // namespace

void require(bool holds, const std::string& promise) {
  if (!holds) throw std::runtime_error(promise);
}

void require_tidy(const path& folder, const Outcome& outcome, const std::string& leftover) {
  if (outcome.kind == Outcome::Kind::kKilled || outcome.untidy) return;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".") && !name.ends_with(".partial")) continue;
    // Harmless, where removing it (or locking a lock file) is what went wrong.
    const bool is_harmless = name.ends_with(".lock") || name.ends_with(".partial");
    if (is_harmless && outcome.hit.ends_with("/" + name)) continue;
    if (name == leftover && outcome.kind == Outcome::Kind::kFailed) continue;
    throw std::runtime_error("left behind: " + name);
  }
}

std::unique_ptr<Scenario> make_scenario(const std::string& name) {
  if (name == "numbered") return std::make_unique<Numbered>(/*async=*/false);
  if (name == "async") return std::make_unique<Numbered>(/*async=*/true);
  if (name == "each_node") return std::make_unique<EachNode>();
  if (name == "latest") return std::make_unique<Latest>();
  if (name == "model") return model_scenario();
  throw std::invalid_argument("no scenario is called " + name);
}

}  // namespace faults
