#include "strategy/zero/sharded_optimizer.h"

#include <ATen/ATen.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>

#include "accelerate/errors.h"
#include "compat/share_names.h"
#include "device/replay_actions.h"
#include "strategy/zero/shard_state.h"

namespace accelerate {
namespace {

// Buckets that are on their way at a time: one arrives while the next one leaves.
constexpr size_t kMostExchanges = 2;

at::Tensor row_of(const at::Tensor& tensor) { return tensor.detach().reshape({-1}); }

at::Tensor elements_of(const at::Tensor& tensor, const ElementRange& range) {
  return row_of(tensor).narrow(0, range.begin, range.numel());
}

// The part of a gradient that belongs to `range`. Where gradients are sharded it is all of it.
at::Tensor gradient_part(const at::Tensor& parameter, const std::string& name,
                         const ElementRange& range) {
  const at::Tensor& gradient = parameter.grad();
  const bool is_row = gradient.dim() == 1 && gradient.numel() == range.numel();
  if (gradient.layout() != c10::kStrided) {
    throw UsageError(
        {.what = "'" + name + "' has a sparse gradient, and its update is sharded",
         .where = "step",
         .hint = "make the embedding with sparse = true before prepare(), or without"});
  }
  if (gradient.sizes() == parameter.sizes()) return elements_of(gradient, range);
  if (is_row) return gradient.detach();
  throw UsageError({.what = "'" + name +
                            "' has a gradient that is neither of its shape nor a row "
                            "of the elements that this rank keeps",
                    .where = "step",
                    .hint = "assign gradients of the shape that the parameter has"});
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(torch::optim::Optimizer& optimizer,
                                   std::shared_ptr<Communicator> ranks,
                                   std::shared_ptr<PlannedModels> models, Check before_update)
    : OptimizerStrategy(optimizer),
      ranks_(std::move(ranks)),
      models_(std::move(models)),
      before_update_(std::move(before_update)) {
  if (dynamic_cast<const torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw UsageError({.what = "the update of LBFGS looks at all parameters together, and each rank "
                              "would see its share of them",
                      .where = "prepare",
                      .hint = "use SGD, Adam, AdamW, Adagrad or RMSprop with ZeroOptions"});
  }
  std::unordered_map<const void*, size_t> known;  // a parameter may be listed twice
  const std::optional<TorchValue> state = state_before_shards(optimizer);
  std::vector<std::vector<at::Tensor>> held;
  std::vector<HeldShard> shards;
  size_t place_of_parameter = 0;
  for (const auto& group : optimizer.param_groups()) {
    Group& own = groups_.emplace_back();
    std::vector<at::Tensor>& tensors = held.emplace_back();
    for (const at::Tensor& parameter : group.params()) {
      Member& member = own.members.emplace_back(Member{.parameter = parameter});
      const auto found = models_->find(parameter);
      if (!found) {
        tensors.push_back(parameter);
        shards.push_back({.parameter = place_of_parameter++});
        continue;
      }
      const auto [place, is_new] = known.emplace(parameter.unsafeGetTensorImpl(), sharded_.size());
      if (is_new) shard(*found, parameter);
      member.sharded = place->second;
      const at::Tensor& shard = sharded_[place->second].shard;
      if (shard.defined()) {
        tensors.push_back(shard);
        shards.push_back(
            {.parameter = place_of_parameter, .elements = sharded_[place->second].own});
      }
      ++place_of_parameter;
    }
    own.held = tensors.size();
  }
  for (size_t i = 0; i < held.size(); ++i) {
    optimizer.param_groups()[i].params() = std::move(held[i]);
  }
  if (state) load_shards_of_state(optimizer, *state, shards);
  models_->note_step();
}

size_t ShardedOptimizer::shard(const PlannedModels::Found& found, const at::Tensor& parameter) {
  const size_t number = sharded_.size();
  Sharded& sharded =
      sharded_.emplace_back(Sharded{.parameter = parameter,
                                    .shard = {},
                                    .plan = found.plan,
                                    .number = found.parameter,
                                    .own = found.plan->part(found.parameter, ranks_->rank())});
  const size_t bucket = found.plan->bucket_of(found.parameter);
  if (found.units && bucket < found.units->size()) {
    const auto& members = found.plan->buckets()[bucket].parameters;
    const auto place = std::ranges::find(members, found.parameter) - members.begin();
    sharded.is_touched = true;
    if (sharded.own.numel() > 0) {
      sharded.shard = found.units->piece(bucket, static_cast<size_t>(place));
      compat::name_share(sharded.shard, found.plan->name(found.parameter));
    }
    if (std::ranges::find(units_, found.units) == units_.end()) units_.push_back(found.units);
    return number;
  }
  if (sharded.own.numel() > 0) {
    sharded.shard = at::empty({sharded.own.numel()}, parameter.options());
    place(sharded);
    sharded.shard.set_requires_grad(true);
    compat::name_share(sharded.shard, found.plan->name(found.parameter));
  }
  auto share = std::ranges::find_if(shares_, [&](const Share& known) {
    return known.plan == found.plan && known.bucket == bucket;
  });
  if (share == shares_.end()) {
    share = shares_.insert(share, {.plan = found.plan, .bucket = bucket});
  }
  share->sharded.push_back(number);
  return number;
}

// The shard is where the elements of the parameter are now: it may have got other memory.
void ShardedOptimizer::place(const Sharded& sharded) const {
  if (!sharded.shard.defined() || sharded.is_touched) return;
  const at::Tensor own = elements_of(sharded.parameter, sharded.own);
  sharded.shard.set_data(sharded.parameter.is_contiguous() ? own : own.clone());
}

std::vector<at::Tensor> ShardedOptimizer::parameters() const {
  std::vector<at::Tensor> all;
  const auto& present = optimizer().param_groups();
  for (size_t i = 0; i < present.size(); ++i) {
    const std::vector<at::Tensor>& tensors = present[i].params();
    size_t known = 0;
    if (i < groups_.size()) {
      for (const Member& member : groups_[i].members) all.push_back(member.parameter);
      known = groups_[i].held;
    }
    // Those that came later.
    for (size_t k = known; k < tensors.size(); ++k) all.push_back(tensors[k]);
  }
  return all;
}

void ShardedOptimizer::require_known_members() const {
  for (const auto& group : optimizer().param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto found = models_->find(parameter);
      if (!found) continue;
      throw UsageError({.what = "'" + found->plan->name(found->parameter) +
                                "' came to the optimizer by itself, or its model was prepared "
                                "after the optimizer: its update is not sharded",
                        .where = "step",
                        .hint = "prepare models before their optimizers, or in one call, with all "
                                "parameters in place"});
    }
  }
}

// Ranks that keep gradients for themselves would mix updates of their own.
void ShardedOptimizer::require_synchronised() const {
  for (const Sharded& sharded : sharded_) {
    const auto found = models_->find(sharded.parameter);
    if (!found || found->plan != sharded.plan) {  // or it was cut anew
      throw UsageError({.what = "a model of this optimizer was released by free_memory(), or a "
                                "backward pass of it failed",
                        .where = "step",
                        .hint = "prepare the model again, and a new optimizer"});
    }
    if (found->model->gradient_sync() != GradientSync::kLocal) {
      if (!found->holds_local || !sharded.parameter.grad().defined()) continue;
      throw UsageError(
          {.what = "the gradients are those of this rank alone: no backward pass has "
                   "averaged them since the one inside of no_sync()",
           .where = "optimizer.step()",
           .hint = "call accelerator.backward(loss) outside of no_sync() before step()"});
    }
    throw UsageError({.what = "an update inside of no_sync() or LocalSgd: each rank updates its "
                              "share of the parameters alone, by gradients of all ranks",
                      .where = "step",
                      .hint = "step where gradients are averaged, or train with DDP"});
  }
}

void ShardedOptimizer::before_step() {
  if (device::ReplayActions::current() != nullptr) {
    throw UsageError({.what = "a step whose update is sharded cannot be recorded as a graph",
                      .where = "step",
                      .hint = "train without capture, or with DDP"});
  }
  require_known_members();
  require_synchronised();
  for (const auto& units : units_) units->require_no_scope("an update");
  before_update_(parameters());
  models_->note_step();
  for (const Sharded& sharded : sharded_) {
    if (!sharded.shard.defined()) continue;
    place(sharded);
    at::Tensor& gradient = sharded.shard.mutable_grad();
    gradient.reset();
    if (!sharded.parameter.grad().defined()) continue;
    gradient = gradient_part(sharded.parameter, sharded.plan->name(sharded.number), sharded.own);
  }
}

// A bucket that is on its way.
struct ShardedOptimizer::Exchange {
  const Share* share;
  at::Tensor own;
  at::Tensor all;
  Work work;
};

ShardedOptimizer::Exchange ShardedOptimizer::send(const Share& share) const {
  const int64_t part_numel = share.plan->buckets()[share.bucket].part_numel;
  const auto options = sharded_[share.sharded.front()].parameter.options().requires_grad(false);
  Exchange exchange{.share = &share,
                    .own = at::zeros({part_numel}, options),
                    .all = at::empty({part_numel * ranks_->world_size()}, options),
                    .work = {}};
  for (const size_t i : share.sharded) {
    const Sharded& sharded = sharded_[i];
    if (!sharded.shard.defined()) continue;
    const int64_t begin = sharded.plan->begin_in_part(sharded.number, ranks_->rank());
    exchange.own.narrow(0, begin, sharded.own.numel()).copy_(sharded.shard.detach());
  }
  exchange.work = ranks_->all_gather_into_async(exchange.all, exchange.own);
  return exchange;
}

void ShardedOptimizer::receive(Exchange& exchange) const {
  exchange.work.wait();
  for (const size_t i : exchange.share->sharded) {
    const Sharded& sharded = sharded_[i];
    const at::Tensor& parameter = sharded.parameter;
    const int64_t numel = parameter.numel();
    const at::Tensor all = exchange.all.narrow(0, sharded.plan->begin(sharded.number), numel);
    if (!parameter.is_contiguous()) {
      parameter.detach().copy_(all.view(parameter.sizes()));
    } else {
      at::Tensor row = row_of(parameter);
      const auto take = [&](const ElementRange& range) {
        if (range.numel() == 0) return;
        row.narrow(0, range.begin, range.numel()).copy_(all.narrow(0, range.begin, range.numel()));
      };
      take({.begin = 0, .end = sharded.own.begin});
      take({.begin = sharded.own.end, .end = numel});
    }
    // Kernels that update a shard do not count their writes on the parameter.
    if (!parameter.is_inference()) parameter.unsafeGetTensorImpl()->bump_version();
  }
}

void ShardedOptimizer::after_step() {
  const at::NoGradGuard no_grad;
  for (const Sharded& sharded : sharded_) {
    if (sharded.shard.defined()) sharded.shard.mutable_grad().reset();
  }
  for (const auto& units : units_) units->shards_changed();
  std::deque<Exchange> under_way;
  const auto receive_first = [&] {
    receive(under_way.front());
    under_way.pop_front();
  };
  for (const Share& share : shares_) {
    if (under_way.size() == kMostExchanges) receive_first();
    under_way.push_back(send(share));
  }
  while (!under_way.empty()) receive_first();
}

std::optional<OptimizerLayout> ShardedOptimizer::layout() const {
  OptimizerLayout layout;
  size_t number = 0;
  const auto add_whole = [&](const at::Tensor& parameter) {
    auto& pieces = layout.tensors.emplace_back();
    for (TensorBox& box : boxes_of_range(parameter.sizes(), 0, parameter.numel())) {
      pieces.push_back({.parameter = number, .box = std::move(box)});
    }
    ++number;
  };
  const auto& present = optimizer().param_groups();
  for (size_t i = 0; i < present.size(); ++i) {
    const size_t first = number;
    size_t known = 0;
    if (i < groups_.size()) {
      known = groups_[i].held;
      for (const auto& [parameter, index] : groups_[i].members) {
        if (!index) {
          add_whole(parameter);
          continue;
        }
        const Sharded& sharded = sharded_[*index];
        if (sharded.shard.defined()) {
          auto& pieces = layout.tensors.emplace_back();
          for (TensorBox& box :
               boxes_of_range(parameter.sizes(), sharded.own.begin, sharded.own.end)) {
            pieces.push_back({.parameter = number, .box = std::move(box)});
          }
        }
        ++number;
      }
    }
    const std::vector<at::Tensor>& tensors = present[i].params();
    for (size_t k = known; k < tensors.size(); ++k) add_whole(tensors[k]);
    layout.group_sizes.push_back(number - first);
  }
  return layout;
}

}  // namespace accelerate
