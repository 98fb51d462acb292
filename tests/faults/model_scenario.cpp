// save_model() in a folder that holds an earlier model: the weights of the one are all 1, of the
// other all 2.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include "rank_scenario.h"

namespace faults {
namespace {

using accelerate::SaveModelOptions;
using std::filesystem::path;

// Two tensors, each in a shard of its own.
constexpr uint64_t kShardBytes = 1050;

// From shards of archives to shards of safetensors, and those over shards of the same names.
class ModelScenario final : public Scenario {
 public:
  void prepare(const path& folder) const override {
    for (const path& model : {folder / "other_format", folder / "same_names"}) {
      write(
          model, 1,
          {.max_shard_size = kShardBytes, .safe_serialization = model.filename() == "same_names"});
    }
  }

  void save(const path& folder, const std::function<void()>& arm) const override {
    accelerate::Accelerator accelerator({.cpu = true});
    torch::nn::Linear net = net_of(2);
    auto prepared = accelerator.prepare(net);
    arm();
    for (const char* model : {"other_format", "same_names"}) {
      accelerator.save_model(prepared, folder / model, {.max_shard_size = kShardBytes});
    }
  }

  void check(const path& folder, const Outcome& outcome) const override {
    require_tidy(folder, outcome);
    const int64_t first = number_in(folder / "other_format", outcome);
    const int64_t second = number_in(folder / "same_names", outcome);
    if (outcome.saved) require(first == 2 && second == 2, "what was saved is not there");
    require(second != 2 || first == 2, "the second was saved before the first");
    for (const path& model : {folder / "other_format", folder / "same_names"}) {
      write(model, 3, {.max_shard_size = kShardBytes});
      require(number_in(model, {}) == 3, "the next save is not what is loaded");
    }
    require_tidy(folder, {});
  }

 private:
  static torch::nn::Linear net_of(int64_t number) {
    torch::nn::Linear net(torch::nn::LinearOptions(16, 16));
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : net->parameters()) parameter.fill_(static_cast<double>(number));
    return net;
  }

  static void write(const path& folder, int64_t number, const SaveModelOptions& options) {
    const char* rank = getenv("RANK");
    if (rank == nullptr || std::string(rank) == "0") {
      accelerate::save_model(*net_of(number), folder, options);
    }
  }

  // The model that is found in a folder; 0 if there is none, which only a killed save may leave.
  static int64_t number_in(const path& folder, const Outcome& outcome) {
    try {
      const auto weights = accelerate::load_state_dict(folder);
      require(weights.size() == 2, "the model has lost a tensor");
      const auto number = weights["weight"].max().item<double>();
      for (const auto& item : weights) {
        require(item.value().eq(number).all().item<bool>(), "the model is a mix of two");
      }
      return static_cast<int64_t>(number);
    } catch (const accelerate::CheckpointError& error) {
      require(outcome.kind == Outcome::Kind::kKilled &&
                  error.message().find("holds no model") != std::string::npos,
              std::string("the folder cannot be loaded: ") + error.what());
      return 0;
    }
  }
};

}  // namespace

std::unique_ptr<Scenario> model_scenario() { return std::make_unique<ModelScenario>(); }

}  // namespace faults
