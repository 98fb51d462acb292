#include "strategy/ddp/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "base/printable_text.h"
#include "strategy/ddp/bucket_mean.h"

namespace accelerate {
namespace {

// Memory of a GPU belongs to the stream on which it was allocated. If it is freed while another
// stream, on which it is used too, has not come that far, it would be given away too early; so the
// allocator is told. Costs nothing on the stream of its own.
void use_on_current_stream(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return;
  const c10::impl::VirtualGuardImpl device(tensor.device().type());
  tensor.record_stream(device.getStream(tensor.device()));
}

// As users choose it; see ddp.h.
const char* name_of(PowerSgdHook::Shape shape) {
  return shape == PowerSgdHook::Shape::kSquare ? "batched_power_sgd" : "power_sgd";
}

void use_on_current_stream(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) use_on_current_stream(tensor);
}

}  // namespace

struct PowerSgdHook::Pass {
  at::Tensor buffer{};                     // the bucket
  at::Tensor values{};                     // the same or, as a square, a padded copy
  at::Tensor input{};                      // what should have been averaged; for the error
  std::vector<at::Tensor> uncompressed{};  // views of `values`
  std::vector<at::Tensor> matrices{};      // views of `values`
  at::Tensor first_message{};              // `uncompressed` and P, one after the other
  Memory* memory = nullptr;
};

PowerSgdHook::PowerSgdHook(c10::intrusive_ptr<c10d::ProcessGroup> group,
                           const PowerSgdOptions& options, Shape shape)
    : group_(std::move(group)), options_(options), shape_(shape) {}

at::Tensor PowerSgdHook::parseHookResult(const c10::IValue& result) {
  return c10d::detail::parseCppCommHookResult(result);
}

c10::intrusive_ptr<c10::ivalue::Future> PowerSgdHook::runHook(c10d::GradBucket& bucket) {
  const at::NoGradGuard no_grad;
  const bool whole = iteration_ < options_.start_power_sgd_iter;
  if (bucket.isLast()) ++iteration_;
  if (whole || bucket.getBuffer().is_sparse()) return average_bucket(group_, bucket);

  auto pass = std::make_shared<Pass>(begin_pass(bucket, memories_[bucket.getIndex()]));
  std::vector<at::Tensor> message{pass->first_message};
  const auto sent = group_->allreduce(message)->getFuture();
  // NCCL's futures are complete at once and order streams: what follows runs here, on a stream of
  // its own. Those of Gloo are waited for, because a callback on Gloo's threads would begin the
  // second exchange in another order on each rank.
  if (!sent->completed()) sent->wait();
  return sent->then(
      [this, pass](c10::ivalue::Future& done) -> c10::IValue {
        const at::NoGradGuard in_callback;
        if (done.hasError()) std::rethrow_exception(done.exception_ptr());
        // Made on the stream of the backward pass, which the owner of `pass` lets go of at once.
        use_on_current_stream(pass->values);
        use_on_current_stream(pass->input);
        use_on_current_stream(pass->first_message);
        use_on_current_stream(pass->memory->directions);
        use_on_current_stream(pass->memory->first_directions);
        finish_pass(*pass);
        return pass->buffer;
      },
      c10::TensorType::get());
}

PowerSgdHook::Pass PowerSgdHook::begin_pass(c10d::GradBucket& bucket, Memory& memory) {
  Pass pass{.buffer = bucket.getBufferRef(), .memory = &memory};
  // Made by the last pass, on a stream of its own.
  use_on_current_stream(memory.error);
  use_on_current_stream(memory.directions);
  use_on_current_stream(memory.first_directions);
  if (shape_ == Shape::kGradients) {
    pass.values = pass.buffer;
  } else {
    const auto side =
        static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(pass.buffer.numel()))));
    pass.values = at::zeros({side * side}, pass.buffer.options());
    pass.values.narrow(0, 0, pass.buffer.numel()).copy_(pass.buffer);
    pass.matrices.push_back(pass.values.view({side, side}));
  }
  if (options_.use_error_feedback) {
    // Buckets are rebuilt after the first pass: a memory of another size is that of another bucket.
    if (memory.error.defined() && memory.error.numel() == pass.values.numel()) {
      pass.values.add_(memory.error);
    }
    pass.input = pass.values.clone();
  }
  if (shape_ == Shape::kGradients) {
    for (const at::Tensor& gradient : bucket.getGradients()) {
      const at::Tensor matrix =
          gradient.dim() > 1 && gradient.numel() > 0 ? gradient.flatten(1) : gradient;
      (is_worth_compressing(matrix) ? pass.matrices : pass.uncompressed).push_back(matrix);
    }
  }

  draw_directions(pass.matrices, memory);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : pass.uncompressed) parts.push_back(tensor.reshape({-1}));
  for (size_t i = 0; i < pass.matrices.size(); ++i) {
    parts.push_back(at::matmul(pass.matrices[i], memory.directions[i]).view({-1}));
  }
  pass.first_message = at::cat(parts);
  return pass;
}

void PowerSgdHook::draw_directions(const std::vector<at::Tensor>& matrices, Memory& memory) {
  const auto fits = [&](const at::Tensor& matrix, const at::Tensor& directions) {
    return directions.size(0) == matrix.size(1) && directions.size(1) == rank_for(matrix) &&
           directions.scalar_type() == matrix.scalar_type();
  };
  const bool reuse = options_.warm_start && std::ranges::equal(matrices, memory.directions, fits);
  if (reuse) {
    for (size_t i = 0; i < matrices.size(); ++i) {
      // A direction vanishes where the gradient was zero, and is not a number after an overflow: it
      // would never come back. Lengths in float: half precision does not hold them.
      at::Tensor& directions = memory.directions[i];
      const at::Tensor length =
          at::linalg_vector_norm(directions, 2, at::IntArrayRef{0}, true,
                                 at::promote_types(directions.scalar_type(), at::kFloat));
      directions = at::where((length > 0).logical_and_(length.isfinite()), directions,
                             memory.first_directions[i]);
      orthogonalize(directions);
    }
    return;
  }
  memory.directions.clear();
  memory.first_directions.clear();
  for (const at::Tensor& matrix : matrices) {
    // Other directions each time, the same on all ranks.
    const auto generator =
        at::detail::createCPUGenerator(options_.random_seed * 0x9E3779B97F4A7C15 + draws_++);
    at::Tensor directions =
        at::randn({matrix.size(1), rank_for(matrix)}, generator, at::TensorOptions(at::kFloat))
            .to(matrix.device(), matrix.scalar_type());
    orthogonalize(directions);
    memory.first_directions.push_back(directions);
    memory.directions.push_back(std::move(directions));
  }
}

void PowerSgdHook::finish_pass(Pass& pass) const {
  const auto world_size = static_cast<double>(group_->getSize());
  int64_t offset = 0;
  const auto take = [&](int64_t count) {
    offset += count;
    return pass.first_message.narrow(0, offset - count, count);
  };
  for (at::Tensor& tensor : pass.uncompressed) {
    tensor.copy_(take(tensor.numel()).view_as(tensor).div(world_size));
  }

  std::vector<at::Tensor> bases;  // P
  std::vector<at::Tensor> parts;
  for (const at::Tensor& matrix : pass.matrices) {
    const int64_t rank = rank_for(matrix);
    at::Tensor basis = take(matrix.size(0) * rank).view({matrix.size(0), rank});
    orthogonalize(basis);
    parts.push_back(at::matmul(matrix.t(), basis).view({-1}));
    bases.push_back(std::move(basis));
  }
  if (!parts.empty()) {
    std::vector<at::Tensor> message{at::cat(parts)};
    group_->allreduce(message)->wait();
    message[0].div_(world_size);
    offset = 0;
    for (size_t i = 0; i < pass.matrices.size(); ++i) {
      at::Tensor& matrix = pass.matrices[i];
      const int64_t rank = rank_for(matrix);
      at::Tensor directions =
          message[0].narrow(0, offset, matrix.size(1) * rank).view({matrix.size(1), rank});
      offset += directions.numel();
      matrix.copy_(at::matmul(bases[i], directions.t()));
      pass.memory->directions[i] = std::move(directions);
    }
  }
  // What an overflow left is no error to make up for: added to every gradient that follows, it
  // would make all of them no number.
  if (pass.input.defined()) {
    pass.memory->error = pass.input.sub_(pass.values).nan_to_num_(0.0, 0.0, 0.0);
  }
  if (shape_ == Shape::kSquare) {
    pass.buffer.copy_(pass.values.narrow(0, 0, pass.buffer.numel()));
  }
}

int64_t PowerSgdHook::rank_for(const at::Tensor& matrix) const {
  return std::min({matrix.size(0), matrix.size(1), options_.matrix_approximation_rank});
}

bool PowerSgdHook::is_worth_compressing(const at::Tensor& matrix) const {
  if (matrix.dim() != 2 || matrix.numel() == 0) return false;
  const auto sent = static_cast<double>((matrix.size(0) + matrix.size(1)) * rank_for(matrix));
  return sent * options_.min_compression_rate < static_cast<double>(matrix.numel());
}

// Makes the columns orthonormal, in float at least: what half precision leaves of columns that are
// nearly parallel is not orthogonal to anything. QR is quicker for more than two.
void PowerSgdHook::orthogonalize(at::Tensor& matrix) const {
  const at::ScalarType dtype = matrix.scalar_type();
  at::Tensor columns = matrix.to(at::promote_types(dtype, at::kFloat), /*non_blocking=*/false,
                                 /*copy=*/true);
  if (columns.size(1) > 2) {
    matrix = std::get<0>(at::linalg_qr(columns)).to(dtype);
    return;
  }
  const double epsilon = options_.orthogonalization_epsilon;
  const auto length_of = [](const at::Tensor& column) { return at::linalg_vector_norm(column, 2); };
  // A column of zeros stays one.
  const auto divisor = [&](const at::Tensor& length, double added) {
    return length.add(added).clamp_min_(std::numeric_limits<float>::min());
  };
  at::Tensor first = columns.narrow(1, 0, 1);
  const at::Tensor length = length_of(first);
  if (columns.size(1) == 1) {
    matrix = first.div_(divisor(length, epsilon)).to(dtype);
    return;
  }

  // The gradient may have fewer directions than are asked for. All that is left of the second
  // column is rounding then, which points anywhere, along the first one too, whose part of the
  // gradient would count twice. (torch.distributed's hook, which subtracts once and divides, has
  // that fault.) So what is left along the first is subtracted again, and rounding that is left
  // after that is no direction.
  const at::Tensor unit = first / divisor(length, 0);
  first.div_(divisor(length, epsilon));
  at::Tensor second = columns.narrow(1, 1, 1);
  const at::Tensor second_length = length_of(second);
  // An epsilon leaves a part along the first where it is, by definition; 0 without one.
  const at::Tensor meant =
      at::matmul(unit.t(), second).mul_(1 - (length / divisor(length, epsilon)).square_());
  second.sub_(at::matmul(first, at::matmul(first.t(), second)));
  second.sub_(at::matmul(unit, at::matmul(unit.t(), second).sub_(meant)));
  const double rounding =
      8 * (columns.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                : std::numeric_limits<float>::epsilon());
  const at::Tensor left = length_of(second);
  second.div_(divisor(left, epsilon));
  // Not of what is infinite or not a number: an overflow must be seen.
  second.masked_fill_(left < second_length * rounding, 0);
  matrix = columns.to(dtype);
}

namespace {

StateValue::List to_list(const std::vector<at::Tensor>& tensors) {
  return {tensors.begin(), tensors.end()};
}

at::Tensor copied_to(c10::Device device, const at::Tensor& tensor) {
  return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

[[noreturn]] void refuse_state(const std::string& what) {
  throw CheckpointError({.what = "the state of PowerSGD " + what});
}

std::vector<at::Tensor> matrices_of(const StateDict& bucket, const char* key) {
  std::vector<at::Tensor> matrices;
  for (const StateValue& value : bucket.at(key).as_list()) {
    const at::Tensor& matrix = value.as_tensor();
    if (matrix.dim() != 2 || !matrix.is_floating_point()) {
      refuse_state(std::string("has ") + key + " that are not matrices");
    }
    matrices.push_back(matrix);
  }
  return matrices;
}

}  // namespace

StateDict PowerSgdHook::state() const {
  StateValue::List buckets;
  for (const auto& [index, memory] : memories_) {
    StateDict bucket{{"index", index},
                     {"directions", to_list(memory.directions)},
                     {"first_directions", to_list(memory.first_directions)}};
    if (memory.error.defined()) bucket.set("error", memory.error);
    buckets.emplace_back(std::move(bucket));
  }
  return {{"iteration", iteration_},
          {"draws", draws_},
          {"rank", options_.matrix_approximation_rank},
          {"hook", name_of(shape_)},
          {"buckets", std::move(buckets)}};
}

PowerSgdHook::Saved PowerSgdHook::parse(const StateDict& state) {
  const auto count = [&](const StateDict& dict, const char* key) {
    const int64_t value = dict.at(key).as_integer();
    if (value < 0) refuse_state(std::string("has ") + key + " = " + std::to_string(value));
    return value;
  };
  Saved saved{.iteration = count(state, "iteration"),
              .draws = static_cast<uint64_t>(count(state, "draws"))};
  if (state.contains("rank")) saved.rank = count(state, "rank");
  if (state.contains("hook")) saved.hook = state.at("hook").as_string();
  const auto same_kind = [](const at::Tensor& one, const at::Tensor& other) {
    return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type();
  };
  for (const StateValue& value : state.at("buckets").as_list()) {
    const StateDict& bucket = value.as_dict();
    Memory& memory = saved.memories[static_cast<size_t>(count(bucket, "index"))];
    memory.directions = matrices_of(bucket, "directions");
    memory.first_directions = matrices_of(bucket, "first_directions");
    if (!std::ranges::equal(memory.directions, memory.first_directions, same_kind)) {
      refuse_state("has directions and first_directions that do not belong together");
    }
    if (const StateValue* error = bucket.find("error")) memory.error = error->as_tensor();
    if (memory.error.defined() && (memory.error.dim() != 1 || !memory.error.is_floating_point())) {
      refuse_state("has an error that is not a row of numbers");
    }
  }
  return saved;
}

std::string PowerSgdHook::check(const StateDict& state) const {
  const Saved saved = parse(state);
  if (!saved.hook.empty() && saved.hook != name_of(shape_)) {
    return "the directions of PowerSGD: saved by " + printable_text(saved.hook) +
           ", this program uses " + name_of(shape_) + "; they are drawn again";
  }
  const int64_t own = options_.matrix_approximation_rank;
  if (saved.rank == 0 || saved.rank == own) return {};
  return "the directions of PowerSGD: saved with matrix_approximation_rank " +
         std::to_string(saved.rank) + ", this program has " + std::to_string(own) +
         "; they are drawn again";
}

void PowerSgdHook::load(const StateDict& state, c10::Device device) {
  Saved saved = parse(state);
  for (auto& [index, memory] : saved.memories) {
    for (at::Tensor& matrix : memory.directions) matrix = copied_to(device, matrix);
    for (at::Tensor& matrix : memory.first_directions) matrix = copied_to(device, matrix);
    if (memory.error.defined()) memory.error = copied_to(device, memory.error);
  }
  iteration_ = saved.iteration;
  draws_ = saved.draws;
  memories_ = std::move(saved.memories);
}

}  // namespace accelerate
