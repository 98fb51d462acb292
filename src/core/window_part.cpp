#include "core/window_part.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "checkpoint/model/model_state.h"
#include "checkpoint/name_list.h"
#include "checkpoint/state/rank_state.h"
#include "checkpoint/state/rng_part.h"

namespace accelerate {
namespace {

using checkpoint::rank_file;
using checkpoint::RankState;
using checkpoint::Snapshot;
using checkpoint::StateReader;
using Tensors = RankState::Tensors;

constexpr const char* kWindow = "accumulation";
constexpr const char* kOrder = "gradient_order";
constexpr const char* kFollowed = "gradient_order_followed";

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

class WindowPart final : public checkpoint::StatePart {
 public:
  WindowPart(const TrainingState& training, const ProcessState& state,
             std::optional<bool> with_gradients)
      : training_(training), rank_(state.rank()), world_size_(state.world_size()) {
    with_gradients_ = saves_gradients(training, with_gradients);
    // Where every forward pass takes over those of rank 0, nobody uses the others.
    const bool uses_own = training.window->steps() > 1 || !training.strategy->shares_buffers();
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
    const WindowWeights::State& weights = training_.weights->state();
    RankState own{.losses = weights.losses,
                  .weighted = weights.weighted,
                  .weighted_in_micro_batch = weights.weighted_in_micro_batch,
                  .sum_of_weights = weights.sum,
                  .trigger = training_.trigger->is_raised()};
    for (const auto& model : training_.models) {
      ExchangeMemory* memory = model.strategy->exchange_memory();
      ExchangeState exchange = memory != nullptr ? memory->state() : ExchangeState{};
      order.push_back(exchange.gradient_order);
      followed.push_back(exchange.follows_order);
      own.hooks.push_back(std::move(exchange.own));
    }
    if (!with_gradients_ && !with_buffers_ && !own.trigger && !own.has_hooks()) return;
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
    weight_unit_ = window.value("weight_unit", 0.0);
    order_ = reader.facts().at(kOrder).get<std::vector<std::vector<int64_t>>>();
    followed_ = reader.facts().at(kFollowed).get<std::vector<bool>>();
    read_rank_state(reader);
    check_exchange(reader);
  }

  // While there are no gradients; see ExchangeMemory. All ranks have read the same order.
  void exchange(const Together& together) override {
    for (size_t i = 0; i < training_.models.size(); ++i) {
      const auto& model = training_.models[i];
      set_gradients(model, {});
      ExchangeMemory* memory = model.strategy->exchange_memory();
      if (memory == nullptr) continue;
      // It may fail on one rank, even where it is not collective.
      together([&] { memory->restore(exchange_state(i)); });
    }
  }

  void apply() override {
    training_.window->restore(loaded_);
    training_.weights->restore({.losses = own_.losses,
                                .weighted = own_.weighted,
                                .weighted_in_micro_batch = own_.weighted_in_micro_batch,
                                .sum = own_.sum_of_weights,
                                .unit = weight_unit_});
    if (own_.trigger) training_.trigger->set();
    // Those of parameters outside of models too: what is left of the old run counts no more.
    for (const PreparedOptimizer& prepared : training_.optimizers) {
      for (const at::Tensor& parameter : prepared.parameters()) parameter.mutable_grad().reset();
    }
    for (size_t i = 0; i < training_.models.size(); ++i) {
      const PreparedModule& model = training_.models[i];
      if (i < own_.gradients.size()) set_gradients(model, own_.gradients[i]);
      if (i < own_.buffers.size()) set_buffers(*model.module, own_.buffers[i]);
    }
    if (training_.gradients_replaced) training_.gradients_replaced();
  }

 private:
  // Of the model with this number, as it was read.
  ExchangeState exchange_state(size_t index) const {
    ExchangeState state;
    if (index < order_.size()) state.gradient_order = order_[index];
    if (index < followed_.size()) state.follows_order = followed_[index];
    if (index < own_.hooks.size()) state.own = own_.hooks[index];
    return state;
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
    is_of_as_many_ranks_ = reader.saved_world_size() == world_size_;
    if (!is_of_as_many_ranks_) return read_all_ranks(reader);
    if (reader.has(rank_file(rank_))) {
      own_ = read_file(reader, rank_);
    }
  }

  RankState read_file(StateReader& reader, int rank) const {
    RankState state = RankState::from_archive(reader.archive(rank_file(rank)));
    // Nothing looks at those of models that this program does not have.
    if (state.gradients.size() > training_.models.size()) {
      state.gradients.resize(training_.models.size());
    }
    check_tensors(state, reader.where(rank_file(rank)));
    return state;
  }

  void read_all_ranks(StateReader& reader) {
    std::vector<RankState> ranks;
    std::vector<std::string> missing;
    bool has_window = false, has_buffers = false, has_hooks = false;
    for (int rank = 0; rank < reader.saved_world_size(); ++rank) {
      RankState& state = ranks.emplace_back();
      if (!reader.has(rank_file(rank))) {
        missing.push_back(rank_file(rank));
        continue;
      }
      state = read_file(reader, rank);
      has_window = has_window || !state.gradients.empty() || (!loaded_.sync && state.losses > 0);
      has_buffers = has_buffers || !state.buffers.empty();
      has_hooks = has_hooks || state.has_hooks();
    }
    if (has_window && !missing.empty()) {
      throw CheckpointError(
          {.what = "saved inside a window of accumulation, and the files of some ranks are not "
                   "here: " +
                   checkpoint::name_list(missing),
           .where = reader.directory().string(),
           .hint = "load it on " + std::to_string(reader.saved_world_size()) +
                   " ranks on the same nodes, or save outside of a window"});
    }
    own_ = checkpoint::mean_of(ranks);
    if (has_buffers)
      reader.note("the buffers of other ranks than 0: all ranks have those of rank 0");
    if (has_hooks) reader.note("what PowerSGD kept on other ranks: it starts from scratch");
    own_.trigger = own_.trigger && rank_ == 0;
  }

  void check_exchange(StateReader& reader) const {
    for (size_t i = 0; i < training_.models.size(); ++i) {
      const ExchangeState state = exchange_state(i);
      const ExchangeMemory* memory = training_.models[i].strategy->exchange_memory();
      if (memory == nullptr) {
        if (state.own.size() > 0) {
          reader.note("what the exchange of gradients kept: this program does not use it");
        }
        continue;
      }
      try {
        const std::string left_out = memory->check(state);
        if (!left_out.empty()) reader.note(left_out);
      } catch (const CheckpointError& error) {
        throw CheckpointError({.what = error.message(),
                               .where = reader.where(rank_file(rank_)),
                               .hint = "load another checkpoint"});
      }
    }
  }

  // Before anything is made of them: a tensor of a file may be described larger than any memory.
  void check_tensors(const RankState& state, const std::string& where) const {
    std::vector<std::string> wrong;
    const auto compare = [&](const Tensors& saved, const auto& own, const ModelLayout& layout,
                             const char* kind) {
      for (const auto& [name, tensor] : saved) {
        const at::Tensor* target = own.find(name);
        const auto piece = layout.find(name);
        const bool is_whole_of_piece =
            piece != layout.end() && tensor.sizes() == at::IntArrayRef(piece->second.shape);
        // Pieces of other ranks are not of the same elements.
        const bool is_as_here = (piece == layout.end() || is_of_as_many_ranks_) &&
                                target != nullptr && target->sizes() == tensor.sizes();
        if (!is_whole_of_piece && !is_as_here) wrong.push_back(kind + name);
      }
    };
    for (size_t i = 0; i < training_.models.size(); ++i) {
      const auto& [module, strategy] = training_.models[i];
      if (i < state.gradients.size()) {
        compare(state.gradients[i], module->named_parameters(),
                checkpoint::model_state(*module, *strategy).layout, "the gradient of ");
      }
      if (i < state.buffers.size()) {
        compare(state.buffers[i], module->named_buffers(), {}, "the buffer ");
      }
    }
    if (wrong.empty()) return;
    throw CheckpointError({.what = "the model has no place for " + checkpoint::name_list(wrong),
                           .where = where,
                           .hint = "prepare the model that was saved"});
  }

  // That of the parameter's exact values. A parameter in half precision may have a gradient in
  // float32, and a sum of micro-batches is not rounded on its way.
  static at::ScalarType gradient_type(const at::Tensor& gradient, const at::Tensor& parameter,
                                      const ModelStrategy& strategy) {
    const at::ScalarType own = parameter.scalar_type();
    const bool is_half = own == at::kHalf || own == at::kBFloat16;
    if (is_half && gradient.scalar_type() == at::kFloat) return at::kFloat;
    return strategy.master_of(parameter).scalar_type();
  }

  static void set_gradients(const PreparedModule& model, const Tensors& gradients) {
    for (auto& item : model.module->named_parameters()) {
      const at::Tensor& parameter = item.value();
      const auto found = gradients.find(item.key());
      if (found == gradients.end()) {
        parameter.mutable_grad().reset();
      } else {
        const at::Tensor& gradient = found->second;
        parameter.mutable_grad() =
            gradient.to(parameter.device(), gradient_type(gradient, parameter, *model.strategy),
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
  bool is_of_as_many_ranks_ = true;  // what is loaded
  detail::AccumulationWindow::State loaded_;
  RankState own_;
  double weight_unit_ = 0;  // the same on all ranks
  std::vector<std::vector<int64_t>> order_;
  std::vector<bool> followed_;
};

}  // namespace

bool saves_gradients(const TrainingState& training, std::optional<bool> wanted) {
  return wanted.value_or(!training.window->sync_gradients());
}

std::unique_ptr<checkpoint::StatePart> window_part(const TrainingState& training,
                                                   const ProcessState& state,
                                                   std::optional<bool> with_gradients) {
  return std::make_unique<WindowPart>(training, state, with_gradients);
}

}  // namespace accelerate
