#include "core/accelerator_state_window.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "checkpoint/rng_part.h"
#include "checkpoint/state_names.h"
#include "strategy/reduction_memory.h"

namespace accelerate {
namespace {

using checkpoint::Snapshot;
using checkpoint::StateReader;
using Tensors = std::map<std::string, at::Tensor>;

constexpr const char* kWindow = "accumulation";
constexpr const char* kOrder = "gradient_order";
constexpr const char* kFollowed = "gradient_order_followed";

std::string rank_file(int rank) { return "rank_state_" + std::to_string(rank) + ".bin"; }

// Archives hold dense memory: a sparse gradient is its parts.
TorchValue to_value(const at::Tensor& tensor) {
  if (!tensor.is_sparse()) return tensor;
  return TorchDict{{"indices", tensor._indices()},
                   {"values", tensor._values()},
                   {"size", TorchSize{tensor.sizes().vec()}},
                   {"coalesced", tensor.is_coalesced()}};
}

at::Tensor to_tensor(const TorchValue& value) {
  if (value.is_tensor()) return value.as_tensor();
  const TorchDict& parts = value.as_dict();
  const auto* size = std::get_if<TorchSize>(&parts.at("size").variant());
  if (size == nullptr) throw CheckpointError({.what = "a sparse gradient without its size"});
  return at::sparse_coo_tensor(parts.at("indices").as_tensor(), parts.at("values").as_tensor(),
                               size->sizes)
      ._coalesced_(parts.at("coalesced").as_bool());
}

TorchValue to_value(const Tensors& tensors) {
  TorchDict dict;
  for (const auto& [name, tensor] : tensors) dict.add(name, to_value(tensor));
  return dict;
}

Tensors to_tensors(const TorchValue& value) {
  Tensors tensors;
  for (const auto& [name, tensor] : value.as_dict().entries()) {
    tensors.emplace(name.as_string(), to_tensor(tensor));
  }
  return tensors;
}

Tensors gradients_of(const torch::nn::Module& module) {
  Tensors gradients;
  for (const auto& item : module.named_parameters()) {
    if (item.value().grad().defined()) gradients.emplace(item.key(), item.value().grad());
  }
  return gradients;
}

Tensors buffers_of(const torch::nn::Module& module) {
  Tensors buffers;
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) buffers.emplace(item.key(), item.value());
  }
  return buffers;
}

bool has_buffers(const torch::nn::Module& module) { return !buffers_of(module).empty(); }

// What one rank has put into its file.
struct RankState {
  WindowWeights::State weights{};
  std::vector<Tensors> gradients{};  // by model
  std::vector<Tensors> buffers{};
  std::vector<StateDict> hooks{};  // what communication hooks keep
  bool trigger = false;

  TorchValue to_archive() const {
    const auto list = [](const std::vector<Tensors>& models) {
      std::vector<TorchValue> values;
      for (const Tensors& tensors : models) values.push_back(to_value(tensors));
      return TorchValue(std::move(values));
    };
    return TorchDict{{"losses", weights.losses},
                     {"weighted", weights.weighted},
                     {"weighted_in_micro_batch", weights.weighted_in_micro_batch},
                     {"sum_of_weights", weights.sum},
                     {"gradients", list(gradients)},
                     {"buffers", list(buffers)},
                     {"hooks", to_torch_value(StateValue::List(hooks.begin(), hooks.end()))},
                     {"trigger", trigger}};
  }
  static RankState from_archive(const TorchValue& value) {
    const TorchDict& dict = value.as_dict();
    RankState state{
        .weights = {.losses = dict.at("losses").as_integer(),
                    .weighted = dict.at("weighted").as_bool(),
                    .weighted_in_micro_batch = dict.at("weighted_in_micro_batch").as_bool(),
                    .sum = dict.at("sum_of_weights").as_number()},
        .trigger = dict.at("trigger").as_bool()};
    for (const TorchValue& model : dict.at("gradients").as_sequence()) {
      state.gradients.push_back(to_tensors(model));
    }
    for (const TorchValue& model : dict.at("buffers").as_sequence()) {
      state.buffers.push_back(to_tensors(model));
    }
    for (const TorchValue& model : dict.at("hooks").as_sequence()) {
      state.hooks.push_back(to_state_dict(model));
    }
    return state;
  }
};

// The mean over the ranks of a run of another size; a rank without a gradient counts as zero.
RankState mean_of(const std::vector<RankState>& ranks, int saved_world_size) {
  RankState mean;
  for (const RankState& rank : ranks) {
    mean.trigger = mean.trigger || rank.trigger;
    mean.weights.losses = std::max(mean.weights.losses, rank.weights.losses);
    mean.weights.weighted = mean.weights.weighted || rank.weights.weighted;
    mean.weights.sum += rank.weights.sum / saved_world_size;
    mean.gradients.resize(std::max(mean.gradients.size(), rank.gradients.size()));
    for (size_t model = 0; model < rank.gradients.size(); ++model) {
      for (const auto& [name, gradient] : rank.gradients[model]) {
        at::Tensor& sum = mean.gradients[model][name];
        sum = sum.defined() ? sum + gradient : gradient;
      }
    }
  }
  for (Tensors& model : mean.gradients) {
    for (auto& [name, gradient] : model) gradient = gradient / saved_world_size;
  }
  return mean;
}

class WindowPart final : public checkpoint::StatePart {
 public:
  WindowPart(const TrainingState& training, const ProcessState& state,
             std::optional<bool> with_gradients)
      : training_(training), rank_(state.rank()), world_size_(state.world_size()) {
    with_gradients_ = with_gradients.value_or(!training.window->sync_gradients());
    // Where every forward pass takes over those of rank 0, nobody uses the others.
    const bool uses_own = training.window->steps() > 1 || training.buffers_differ;
    with_buffers_ =
        world_size_ > 1 && uses_own &&
        std::ranges::any_of(training.models, [](const auto& m) { return has_buffers(*m.module); });
  }

  void save(Snapshot& snapshot) const override {
    const auto window = training_.window->state();
    snapshot.facts()[kWindow] = {{"steps", training_.window->steps()},
                                 {"step", window.step},
                                 {"begun", window.begun},
                                 {"sync", window.sync},
                                 {"weight_unit", training_.weights->state().unit}};
    auto& order = snapshot.facts()[kOrder] = nlohmann::json::array();
    auto& followed = snapshot.facts()[kFollowed] = nlohmann::json::array();
    for (const auto& model : training_.models) {
      order.push_back(model.strategy->gradient_order());
      const auto* memory = memory_of(model);
      followed.push_back(memory != nullptr && memory->buckets_follow_order());
    }

    RankState own{.weights = training_.weights->state(), .trigger = training_.trigger->is_raised()};
    for (const auto& model : training_.models) {
      const auto* memory = memory_of(model);
      own.hooks.push_back(memory != nullptr ? memory->hook_state() : StateDict{});
    }
    const bool keeps_nothing =
        std::ranges::all_of(own.hooks, [](const StateDict& hook) { return hook.size() == 0; });
    if (!with_gradients_ && !with_buffers_ && !own.trigger && keeps_nothing) return;
    for (const auto& model : training_.models) {
      if (with_gradients_) own.gradients.push_back(gradients_of(*model.module));
      if (with_buffers_) own.buffers.push_back(buffers_of(*model.module));
    }
    snapshot.add(rank_file(rank_), own.to_archive());
  }

  void check(StateReader& reader) override {
    if (!reader.is_ours()) return read_step_of_python(reader);
    const auto& window = reader.facts().at(kWindow);
    loaded_ = {.step = window.at("step"), .begun = window.at("begun"), .sync = window.at("sync")};
    const int64_t steps = window.at("steps");
    if (steps != training_.window->steps()) {
      if (!loaded_.sync) refuse_other_window(steps, reader);
      loaded_.step = 0;  // at the edge of a window the other length can begin
    }
    own_.weights.unit = window.value("weight_unit", 0.0);
    order_ = reader.facts().at(kOrder).get<std::vector<std::vector<int64_t>>>();
    followed_ = reader.facts().at(kFollowed).get<std::vector<bool>>();
    read_rank_state(reader);
    check_tensors(reader);
  }

  void apply() override {
    training_.window->restore(loaded_);
    training_.weights->restore(own_.weights);
    if (own_.trigger) training_.trigger->set();
    for (size_t i = 0; i < training_.models.size(); ++i) apply_to(training_.models[i], i);
  }

 private:
  static ReductionMemory* memory_of(const detail::PreparedModels::Entry& model) {
    return dynamic_cast<ReductionMemory*>(model.strategy.get());
  }

  void apply_to(const detail::PreparedModels::Entry& model, size_t index) const {
    ReductionMemory* memory = memory_of(model);
    set_gradients(*model.module, {});
    if (index < order_.size()) model.strategy->set_gradient_order(order_[index]);
    // All ranks come here, and have read the same.
    if (memory != nullptr && index < followed_.size() && followed_[index]) {
      memory->let_buckets_follow_order();
    }
    if (index < own_.gradients.size()) set_gradients(*model.module, own_.gradients[index]);
    if (index < own_.buffers.size()) set_buffers(*model.module, own_.buffers[index]);
    if (memory != nullptr && index < own_.hooks.size() && own_.hooks[index].size() > 0) {
      memory->load_hook_state(own_.hooks[index]);
    }
  }

  // The window itself is not in such a directory: what is left of it counts as a short one.
  void read_step_of_python(StateReader& reader) {
    const TorchValue states = reader.archive(checkpoint::rng_file(0));
    if (const TorchValue* step = states.as_dict().find(std::string_view("step")))
      loaded_.step = step->as_integer();
    if (loaded_.step % training_.window->steps() != 0) {
      reader.note("gradients of the window of accumulation that was open");
    }
  }

  [[noreturn]] void refuse_other_window(int64_t steps, const StateReader& reader) const {
    throw CheckpointError({.what = "saved inside a window of accumulation of " +
                                   std::to_string(steps) +
                                   " micro-batches, this program has windows of " +
                                   std::to_string(training_.window->steps()),
                           .where = reader.directory().string(),
                           .hint = "set gradient_accumulation.steps to " + std::to_string(steps)});
  }

  void read_rank_state(StateReader& reader) {
    const int saved = reader.saved_world_size();
    if (saved == world_size_) {
      if (reader.has(rank_file(rank_))) {
        take(RankState::from_archive(reader.archive(rank_file(rank_))));
      }
      return;
    }
    std::vector<RankState> ranks;
    for (int rank = 0; rank < saved; ++rank) {
      if (!reader.has(rank_file(rank))) continue;
      ranks.push_back(RankState::from_archive(reader.archive(rank_file(rank))));
    }
    take(mean_of(ranks, saved));
    const bool had_hooks = std::ranges::any_of(ranks, [](const RankState& rank) {
      return std::ranges::any_of(rank.hooks, [](const StateDict& hook) { return hook.size() > 0; });
    });
    if (had_hooks) reader.note("what PowerSGD kept on each of other ranks: it begins anew");
    own_.trigger = own_.trigger && rank_ == 0;
  }

  // The unit of the weights is that of all ranks.
  void take(RankState state) {
    state.weights.unit = own_.weights.unit;
    own_ = std::move(state);
  }

  void check_tensors(const StateReader& reader) const {
    std::vector<std::string> wrong;
    const auto compare = [&](const Tensors& saved, const auto& own, const char* kind) {
      for (const auto& [name, tensor] : saved) {
        const at::Tensor* target = own.find(name);
        if (target == nullptr || target->sizes() != tensor.sizes()) {
          wrong.push_back(kind + name);
        }
      }
    };
    for (size_t i = 0; i < training_.models.size(); ++i) {
      const torch::nn::Module& module = *training_.models[i].module;
      if (i < own_.gradients.size()) {
        compare(own_.gradients[i], module.named_parameters(), "the gradient of ");
      }
      if (i < own_.buffers.size()) compare(own_.buffers[i], module.named_buffers(), "the buffer ");
    }
    if (wrong.empty()) return;
    throw CheckpointError({.what = "the model has no place for " + checkpoint::name_list(wrong),
                           .where = reader.where(rank_file(rank_)),
                           .hint = "prepare the model that was saved"});
  }

  static void set_gradients(torch::nn::Module& module, const Tensors& gradients) {
    for (auto& item : module.named_parameters()) {
      at::Tensor parameter = item.value();
      const auto found = gradients.find(item.key());
      if (found == gradients.end()) {
        parameter.mutable_grad().reset();
      } else {
        parameter.mutable_grad() = found->second.to(parameter.device(), parameter.scalar_type(),
                                                    /*non_blocking=*/false, /*copy=*/true);
      }
    }
  }

  static void set_buffers(torch::nn::Module& module, const Tensors& buffers) {
    const at::NoGradGuard no_grad;
    for (auto& item : module.named_buffers()) {
      const auto found = buffers.find(item.key());
      if (found != buffers.end()) item.value().copy_(found->second);
    }
  }

  TrainingState training_;
  int rank_;
  int world_size_;
  bool with_gradients_ = false;
  bool with_buffers_ = false;
  detail::AccumulationWindow::State loaded_;
  RankState own_;
  std::vector<std::vector<int64_t>> order_;
  std::vector<bool> followed_;
};

}  // namespace

std::unique_ptr<checkpoint::StatePart> window_part(const TrainingState& training,
                                                   const ProcessState& state,
                                                   std::optional<bool> with_gradients) {
  return std::make_unique<WindowPart>(training, state, with_gradients);
}

}  // namespace accelerate
