#include "strategy/zero/gradient_scatter.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

// Buckets that are on their way at a time: as many are whole beside the gradients of a pass.
constexpr size_t kMostScatters = 2;

std::vector<size_t> buckets_of(const ShardPlan& plan) {
  std::vector<size_t> buckets;
  for (size_t i = 0; i < plan.size(); ++i) buckets.push_back(plan.bucket_of(i));
  return buckets;
}

}  // namespace

GradientScatter::GradientScatter(std::vector<at::Tensor> parameters,
                                 std::shared_ptr<const ShardPlan> plan, ShardGroups groups,
                                 Calls calls)
    : parameters_(std::move(parameters)),
      plan_(std::move(plan)),
      groups_(std::move(groups)),
      on_taken_(std::move(calls.on_taken)),
      types_(plan_->buckets().size()),
      is_idle_(plan_->buckets().size(), true),
      pieces_(parameters_.size(),
              c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>())),
      had_piece_(parameters_.size()),
      wholes_(parameters_.size()),
      versions_(parameters_.size()),
      aside_(parameters_.size()),
      reached_(parameters_.size()),
      parts_(plan_->buckets().size()),
      order_(parameters_, buckets_of(*plan_), plan_->buckets().size(),
             {.send = [this](size_t bucket) { send(bucket); },
              .on_local_gradient = std::move(calls.on_local_gradient)}) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].requires_grad()) is_idle_[plan_->bucket_of(i)] = false;
  }
  for (size_t bucket = 0; calls.type_of && bucket < types_.size(); ++bucket) {
    types_[bucket] = calls.type_of(bucket);
  }
}

// By memory: what sets gradients to zero may make another tensor of it.
bool GradientScatter::is_piece(size_t parameter) const {
  const at::Tensor& gradient = parameters_[parameter].grad();
  if (!gradient.defined() || !gradient.has_storage()) return false;
  if (!pieces_[parameter].expired() &&
      gradient.storage().unsafeGetStorageImpl() == pieces_[parameter]._unsafe_get_target()) {
    return true;
  }
  return had_piece_[parameter] && gradient.dim() == 1 &&
         gradient.numel() == plan_->part(parameter, groups_.shards->rank()).numel();
}

void GradientScatter::place_piece(size_t parameter, at::Tensor piece) {
  pieces_[parameter] =
      c10::weak_intrusive_ptr<c10::StorageImpl>(piece.storage().getWeakStorageImpl());
  had_piece_[parameter] = true;
  parameters_[parameter].mutable_grad() = std::move(piece);
}

at::TensorOptions GradientScatter::options_of(size_t bucket) const {
  const at::Tensor& first = parameters_[plan_->buckets()[bucket].parameters.front()];
  return at::TensorOptions(types_[bucket].value_or(first.scalar_type())).device(first.device());
}

void GradientScatter::set_aside() {
  make_pieces();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (is_piece(i)) aside_[i] = std::exchange(parameters_[i].mutable_grad(), at::Tensor());
    pieces_[i].reset();
    had_piece_[i] = false;
  }
}

// The piece is the mean over the ranks of what this rank adds, if all others add zeros here.
void GradientScatter::give_back(size_t parameter) {
  at::Tensor piece = std::exchange(aside_[parameter], at::Tensor());
  if (!piece.defined()) return;
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  if (!gradient.defined()) {
    return place_piece(parameter, std::move(piece));
  }
  add_piece(parameter, gradient, piece);
}

void GradientScatter::add_piece(size_t parameter, at::Tensor& gradient,
                                const at::Tensor& piece) const {
  const ElementRange own = plan_->part(parameter, groups_.shards->rank());
  if (own.numel() == 0) return;
  at::Tensor row = gradient.detach().reshape({-1});
  // Each copy has a rank that adds it.
  row.narrow(0, own.begin, own.numel()).add_(piece, groups_.shards->world_size());
  if (!gradient.is_contiguous()) gradient.detach().copy_(row.view(gradient.sizes()));
}

void GradientScatter::begin_local() { set_aside(); }

void GradientScatter::widen_gradients() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto type = types_[plan_->bucket_of(i)];
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!type || !gradient.defined() || gradient.scalar_type() == *type || is_piece(i)) continue;
    gradient = gradient.detach().to(*type);
  }
}

void GradientScatter::finish_local() {
  const at::NoGradGuard no_grad;
  widen_gradients();
  for (size_t i = 0; i < parameters_.size(); ++i) give_back(i);
}

void GradientScatter::spread(size_t parameter) {
  at::Tensor whole =
      at::zeros(parameters_[parameter].sizes(), options_of(plan_->bucket_of(parameter)));
  add_piece(parameter, whole, aside_[parameter]);
  wholes_[parameter] = whole;
  versions_[parameter] = whole._version();
  parameters_[parameter].mutable_grad() = std::move(whole);
}

void GradientScatter::spread_pieces() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_piece(i)) continue;
    aside_[i] = std::exchange(parameters_[i].mutable_grad(), at::Tensor());
    had_piece_[i] = false;
    spread(i);
  }
}

void GradientScatter::make_whole() {
  const at::NoGradGuard no_grad;
  make_pieces();
  const size_t count = parameters_.size();
  std::vector<bool> here;
  for (size_t i = 0; i < count; ++i) here.push_back(is_piece(i));
  for (size_t i = 0; i < count; ++i) here.push_back(parameters_[i].grad().defined() && !here[i]);
  const std::vector<bool> flags_everywhere = anywhere(here);
  set_aside();
  // Beside gradients of one rank alone a piece counts as what this rank adds to their mean.
  std::vector<bool> sharded(count);
  for (size_t i = 0; i < count; ++i) {
    const bool is_mixed = flags_everywhere[i] && flags_everywhere[count + i];
    sharded[i] = flags_everywhere[i] && !is_mixed;
    if (is_mixed && aside_[i].defined()) spread(i);
  }
  for (size_t number = 0; number < plan_->buckets().size(); ++number) {
    const ShardPlan::Bucket& bucket = plan_->buckets()[number];
    const auto is_sharded = [&](size_t i) { return sharded[i]; };
    if (std::ranges::none_of(bucket.parameters, is_sharded)) continue;
    at::Tensor own = at::zeros({bucket.part_numel}, options_of(number));
    for (const size_t i : bucket.parameters) {
      if (!aside_[i].defined()) continue;
      own.narrow(0, plan_->begin_in_part(i, groups_.shards->rank()), aside_[i].numel())
          .copy_(aside_[i]);
    }
    at::Tensor all = at::empty({bucket.part_numel * groups_.shards->world_size()}, own.options());
    groups_.shards->all_gather_into_async(all, own).wait();
    for (const size_t i : bucket.parameters) {
      if (!sharded[i]) continue;
      at::Tensor whole = at::empty(parameters_[i].sizes(), own.options());
      whole.copy_(all.narrow(0, plan_->begin(i), whole.numel()).view(whole.sizes()));
      wholes_[i] = whole;
      versions_[i] = whole._version();
      parameters_[i].mutable_grad() = std::move(whole);
    }
  }
}

void GradientScatter::make_pieces() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor whole = std::exchange(wholes_[i], at::Tensor());
    at::Tensor piece = std::exchange(aside_[i], at::Tensor());
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!whole.defined() || !gradient.is_same(whole)) continue;
    if (versions_[i] != whole._version()) continue;
    gradient.reset();
    if (piece.defined()) place_piece(i, std::move(piece));
  }
}

void GradientScatter::begin(bool overlaps) {
  set_aside();
  reached_.assign(reached_.size(), false);
  under_way_.clear();
  averages_.clear();
  order_.arm(overlaps);
}

void GradientScatter::send(size_t bucket) {
  if (is_idle_[bucket]) return;
  const at::NoGradGuard no_grad;
  if (under_way_.size() == kMostScatters) receive_first();
  const ShardPlan::Bucket& present = plan_->buckets()[bucket];
  at::TensorOptions options = options_of(bucket);
  if (sent_type_) options = options.dtype(*sent_type_);
  Exchange exchange{.bucket = bucket,
                    .all = at::zeros({present.part_numel * groups_.shards->world_size()}, options)};
  for (const size_t i : present.parameters) {
    if (!parameters_[i].grad().defined()) continue;
    require_shape_of_gradient(i);
    const at::Tensor gradient = std::exchange(parameters_[i].mutable_grad(), at::Tensor());
    reached_[i] = true;
    exchange.all.narrow(0, plan_->begin(i), parameters_[i].numel())
        .view(parameters_[i].sizes())
        .copy_(gradient.detach());
  }
  if (on_taken_) on_taken_(bucket);
  parts_[bucket] = at::empty({present.part_numel}, options);
  // In float16 the sum may leave the range of the mean.
  const bool divides_first = exchange.all.scalar_type() == at::kHalf;
  if (divides_first) exchange.all.div_(groups_.all->world_size());
  exchange.work = groups_.shards->reduce_scatter_into_async(
      parts_[bucket], exchange.all, divides_first ? ReduceOp::kSum : ReduceOp::kMean);
  under_way_.push_back(std::move(exchange));
}

void GradientScatter::receive_first() {
  Exchange first = std::move(under_way_.front());
  under_way_.pop_front();
  first.work.wait();
  if (!groups_.replicas) return;
  first.all.reset();
  if (averages_.size() == kMostScatters) end_first_average();
  at::Tensor& part = parts_[first.bucket];
  first.work = groups_.replicas->all_reduce_async(
      part, part.scalar_type() == at::kHalf ? ReduceOp::kSum : ReduceOp::kMean);
  averages_.push_back(std::move(first));
}

void GradientScatter::end_first_average() {
  averages_.front().work.wait();
  averages_.pop_front();
}

// Only a rank that has left something out waits to know what the others have done.
std::vector<bool> GradientScatter::anywhere(const std::vector<bool>& here) const {
  const auto count = static_cast<int64_t>(here.size());
  const bool is_all = std::ranges::all_of(here, [](bool is_set) { return is_set; });
  const at::TensorOptions options(parameters_.front().device());
  at::Tensor flags;
  if (is_all) {  // made there: a copy from the host would wait for the device
    flags = at::ones({count}, options.dtype(at::kFloat));
  } else {
    flags = at::zeros({count}, at::kFloat);
    for (int64_t i = 0; i < count; ++i) flags.data_ptr<float>()[i] = here[i] ? 1 : 0;
    flags = flags.to(options.device());
  }
  groups_.all->all_reduce(flags, ReduceOp::kMax);
  if (is_all) return here;
  flags = flags.cpu();
  std::vector<bool> set;
  for (int64_t i = 0; i < count; ++i) set.push_back(flags.data_ptr<float>()[i] != 0);
  return set;
}

bool GradientScatter::finish() {
  const at::NoGradGuard no_grad;
  const ArrivalOrder::End end = order_.finish();
  if (!end.reached) {
    for (size_t i = 0; i < parameters_.size(); ++i) give_back(i);
    return false;
  }
  const std::vector<bool> reached = anywhere(reached_);
  while (!under_way_.empty()) receive_first();
  while (!averages_.empty()) end_first_average();
  for (size_t bucket = 0; bucket < parts_.size(); ++bucket) {
    if (parts_[bucket].defined()) parts_[bucket] = parts_[bucket].to(options_of(bucket));
  }
  const int rank = groups_.shards->rank();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!reached[i]) {
      give_back(i);
      continue;
    }
    // No view for autograd, which zero_grad() of libtorch's optimizers could not detach.
    at::Tensor piece = parts_[plan_->bucket_of(i)]
                           .narrow(0, plan_->begin_in_part(i, rank), plan_->part(i, rank).numel())
                           .variable_data();
    const at::Tensor before = std::exchange(aside_[i], at::Tensor());
    if (before.defined()) piece.add_(before);
    place_piece(i, std::move(piece));
  }
  std::ranges::fill(parts_, at::Tensor());
  if (end.late) refuse_late(*end.late);
  return true;
}

// Other shapes would be spread over that of the parameter.
void GradientScatter::require_shape_of_gradient(size_t parameter) const {
  const at::Tensor& gradient = parameters_[parameter].grad();
  if (gradient.sizes() == parameters_[parameter].sizes()) return;
  std::ostringstream shape;
  shape << gradient.sizes();
  throw UsageError(
      {.what = "'" + plan_->name(parameter) + "' has a gradient of another shape: " + shape.str(),
       .where = "backward",
       .hint = "assign gradients of the shape that the parameter has, or rows of the "
               "elements that this rank keeps of it"});
}

void GradientScatter::refuse_late(size_t parameter) const {
  throw UsageError({.what = "'" + plan_->name(parameter) +
                            "' got a gradient in one pass twice, the second time after the first "
                            "was sent to the other ranks",
                    .where = "backward",
                    .hint = "do not run backward passes inside of others (checkpointing by hand) "
                            "where gradients are sharded"});
}

}  // namespace accelerate
