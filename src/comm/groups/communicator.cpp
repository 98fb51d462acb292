#include "accelerate/communicator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "comm/agreement.h"
#include "comm/groups/communicator_impl.h"
#include "comm/groups/process_group.h"
#include "comm/groups/wire.h"

namespace accelerate {
namespace {

device::Combine combination_of(ReduceOp op, at::ScalarType dtype) {
  // Gloo would add bools up as bytes, to values that no bool has; their sum is "or".
  if (dtype == at::kBool && op == ReduceOp::kSum) return device::Combine::kMax;
  switch (op) {
    case ReduceOp::kMin:
      return device::Combine::kMin;
    case ReduceOp::kMax:
      return device::Combine::kMax;
    case ReduceOp::kSum:
    case ReduceOp::kMean:  // Gloo has no mean: sum, then divide
      break;
  }
  return device::Combine::kSum;
}

// Throws UsageError if the ranks cannot compute `op` of tensors like `tensor`. All ranks find the
// same, since the types agree.
void require_reducible(const Communicator::Impl& impl, const at::Tensor& tensor, ReduceOp op,
                       const char* operation) {
  impl.require_tensor(tensor, operation);
  const at::ScalarType dtype = tensor.scalar_type();
  if (!impl.alone() && !comm::can_be_reduced(dtype)) {
    impl.refuse({.what = std::string("tensors of ") + c10::toString(dtype) +
                         " can be moved between ranks but not reduced",
                 .where = operation,
                 .hint = tensor.is_complex() ? "convert it by at::view_as_real first"
                                             : "convert it to a wider type first"});
  }
  if (op != ReduceOp::kMean || tensor.is_floating_point() || tensor.is_complex()) return;
  impl.refuse({.what = std::string("a mean of ") + c10::toString(dtype) + " has no exact result",
               .where = operation,
               .hint = "convert to a floating-point type first, or use kSum"});
}

// Throws UsageError unless `whole` has the elements of one tensor like `part` for each rank, and
// `output`, one of the two, can be written in place.
void require_parts(const Communicator::Impl& impl, const at::Tensor& whole, const at::Tensor& part,
                   const at::Tensor& output, const char* operation) {
  impl.require_tensor(whole, operation);
  impl.require_tensor(part, operation);
  if (whole.scalar_type() != part.scalar_type() || whole.device() != part.device() ||
      whole.numel() != part.numel() * impl.world_size()) {
    const std::string ranks = std::to_string(impl.world_size());
    const std::string sizes =
        impl.world_size() == 1 ? "they must have the same number of elements"
                               : "one must have " + ranks + " times as many elements as the other";
    impl.refuse({.what = "the tensors do not fit: " + sizes + ", the same dtype and device",
                 .where = operation,
                 .hint = "make the output for this number of ranks"});
  }
  if (output.is_contiguous()) return;
  impl.refuse({.what = "the output is not contiguous",
               .where = operation,
               .hint = "pass output.contiguous(), or one that at::empty makes"});
}

// `name` without the operation that reduces.
Work start_reduce_scatter(Communicator::Impl& impl, at::Tensor output, at::Tensor input,
                          ReduceOp op, const char* name) {
  return impl.start(
      comm::operation_event(name).append(comm::name_of(op)), input,
      [&] {
        return impl.collectives_for(input).reduce_scatter(output, input,
                                                          combination_of(op, input.scalar_type()));
      },
      [output, op, ranks = impl.world_size()]() mutable {
        if (op == ReduceOp::kMean) output.div_(ranks);
      });
}

}  // namespace

Communicator::Communicator(const ProcessState& state, const ProcessGroupOptions& options)
    : impl_(std::make_shared<Impl>(state, options, std::make_shared<EventStream>())) {}

Communicator::Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Communicator::~Communicator() = default;

int Communicator::rank() const { return impl_->rank(); }
int Communicator::world_size() const { return impl_->world_size(); }
int Communicator::global_rank() const { return impl_->global_rank(); }
int Communicator::global_size() const { return impl_->global_size(); }
const std::vector<int>& Communicator::global_ranks() const { return impl_->global_ranks(); }

std::shared_ptr<Communicator> Communicator::split(int color, int key) {
  std::shared_ptr<Impl> part = impl_->split(color, key);
  if (!part) return nullptr;
  return std::shared_ptr<Communicator>(new Communicator(std::move(part)));
}

void Communicator::barrier() {
  if (impl_->alone()) return;
  impl_->collective(comm::operation_event("barrier"), {},
                    [&] { return impl_->host_collectives().barrier(); });
}

void Communicator::broadcast(at::Tensor& tensor, int root) { broadcast_async(tensor, root).wait(); }

Work Communicator::broadcast_async(at::Tensor& tensor, int root) {
  impl_->require_rank(root, "broadcast");
  impl_->require_tensor(tensor, "broadcast");
  if (impl_->alone()) return {};
  at::NoGradGuard no_grad;
  const at::Tensor row = comm::to_wire(tensor);
  std::function<void()> finish;
  if (!row.is_alias_of(tensor)) {
    finish = [target = tensor.detach(), row] { target.copy_(comm::from_wire(row, target)); };
  }
  return impl_->start(
      comm::operation_event("broadcast from ").append(root), tensor,
      [&] { return impl_->collectives_for(row).broadcast(row, root); }, std::move(finish));
}

void Communicator::all_reduce(at::Tensor& tensor, ReduceOp op) {
  all_reduce_async(tensor, op).wait();
}

Work Communicator::all_reduce_async(at::Tensor& tensor, ReduceOp op) {
  require_reducible(*impl_, tensor, op, "all_reduce");
  if (impl_->alone()) return {};
  at::NoGradGuard no_grad;
  const at::Tensor target = tensor.detach();
  const at::Tensor sum = target.contiguous();
  const auto finish = [target, sum, op, ranks = impl_->world_size()] {
    if (op == ReduceOp::kMean) sum.div_(ranks);
    if (!sum.is_alias_of(target)) target.copy_(sum);
  };
  return impl_->start(
      comm::operation_event("all_reduce ").append(comm::name_of(op)), tensor,
      [&] {
        return impl_->collectives_for(sum).all_reduce(sum, combination_of(op, sum.scalar_type()));
      },
      finish);
}

std::vector<at::Tensor> Communicator::all_gather(const at::Tensor& tensor) {
  impl_->require_tensor(tensor, "all_gather");
  if (impl_->alone()) return {tensor.detach().clone()};
  at::NoGradGuard no_grad;
  at::Tensor own = comm::to_wire(tensor);
  at::Tensor all = at::empty({impl_->world_size() * own.numel()}, own.options());
  impl_->collective(comm::operation_event("all_gather"), tensor,
                    [&] { return impl_->collectives_for(own).all_gather(all, own); });
  return comm::from_wire(all, tensor, impl_->world_size()).unbind(0);
}

Work Communicator::all_gather_into_async(at::Tensor& output, const at::Tensor& tensor) {
  constexpr const char* kOperation = "all_gather_into";
  impl_->require_tensor(tensor, kOperation);
  require_parts(*impl_, output, tensor, output, kOperation);
  at::NoGradGuard no_grad;
  if (impl_->alone()) {
    output.detach().view({-1}).copy_(tensor.detach().reshape({-1}));
    return {};
  }
  at::Tensor own = comm::to_wire(tensor);
  at::Tensor all = comm::to_wire(output);
  return impl_->start(comm::operation_event(kOperation), tensor,
                      [&] { return impl_->collectives_for(own).all_gather(all, own); });
}

std::vector<at::Tensor> Communicator::all_gather_ragged(const at::Tensor& tensor) {
  impl_->require_tensor(tensor, "all_gather_ragged");
  if (tensor.dim() == 0) {
    impl_->refuse({.what = "a tensor without dimensions has no rows",
                   .where = "all_gather_ragged",
                   .hint = "use all_gather, or reshape it to one row"});
  }
  if (impl_->alone()) return {tensor.detach().clone()};
  at::NoGradGuard no_grad;

  // Rows, and what must agree: dtype and the shape of a row.
  std::string row = std::string(c10::toString(tensor.scalar_type())) + "[";
  for (int64_t dim = 1; dim < tensor.dim(); ++dim) row += std::to_string(tensor.size(dim)) + ",";
  row += "]";
  const std::vector<std::string> headers =
      all_gather_bytes(std::to_string(tensor.size(0)) + " " + row);
  std::vector<int64_t> rows;
  for (size_t rank = 0; rank < headers.size(); ++rank) {
    const size_t blank = headers[rank].find(' ');
    if (headers[rank].substr(blank + 1) != row) {
      impl_->refuse({.what = "rows differ: " + headers[rank].substr(blank + 1) + " on rank " +
                             std::to_string(impl_->global_ranks()[rank]) + ", " + row + " here",
                     .where = "all_gather_ragged",
                     .hint = "only the first dimension may differ between ranks"});
    }
    rows.push_back(std::stoll(headers[rank].substr(0, blank)));
  }
  const int64_t longest = *std::max_element(rows.begin(), rows.end());
  std::vector<int64_t> padded_shape = tensor.sizes().vec();
  padded_shape[0] = longest;
  at::Tensor padded = at::zeros(padded_shape, tensor.options().requires_grad(false));
  padded.narrow(0, 0, tensor.size(0)).copy_(tensor);
  std::vector<at::Tensor> gathered = all_gather(padded);
  for (size_t rank = 0; rank < gathered.size(); ++rank) {
    gathered[rank] = gathered[rank].narrow(0, 0, rows[rank]);
  }
  return gathered;
}

at::Tensor Communicator::reduce_scatter(const at::Tensor& tensor, ReduceOp op) {
  require_reducible(*impl_, tensor, op, "reduce_scatter");
  const int world_size = impl_->world_size();
  if (tensor.dim() == 0 || tensor.size(0) % world_size != 0) {
    impl_->refuse({.what = "the first dimension cannot be cut into " + std::to_string(world_size) +
                           " equal parts",
                   .where = "reduce_scatter",
                   .hint = "pad it to a multiple of the number of ranks"});
  }
  at::NoGradGuard no_grad;
  if (impl_->alone()) return tensor.detach().clone();
  at::Tensor input = tensor.detach().contiguous();
  at::Tensor output = at::empty_like(input.narrow(0, 0, tensor.size(0) / world_size));
  start_reduce_scatter(*impl_, output, input, op, "reduce_scatter ").wait();
  return output;
}

Work Communicator::reduce_scatter_into_async(at::Tensor& output, const at::Tensor& tensor,
                                             ReduceOp op) {
  constexpr const char* kOperation = "reduce_scatter_into";
  require_reducible(*impl_, tensor, op, kOperation);
  require_parts(*impl_, tensor, output, output, kOperation);
  at::NoGradGuard no_grad;
  if (impl_->alone()) {
    output.detach().view({-1}).copy_(tensor.detach().reshape({-1}));
    return {};
  }
  return start_reduce_scatter(*impl_, output.detach(), tensor.detach().contiguous(), op,
                              "reduce_scatter_into ");
}

void Communicator::scatter(at::Tensor& output, const std::vector<at::Tensor>& inputs, int root) {
  impl_->require_rank(root, "scatter");
  const bool is_root = impl_->rank() == root;
  const auto check = [&] {
    impl_->require_tensor(output, "scatter");
    if (!is_root) return;
    if (inputs.size() != static_cast<size_t>(impl_->world_size())) {
      impl_->refuse({.what = std::to_string(inputs.size()) + " inputs for " +
                             std::to_string(impl_->world_size()) + " ranks",
                     .where = "scatter",
                     .hint = "the root passes one tensor for each rank"});
    }
    for (const at::Tensor& input : inputs) {
      impl_->require_tensor(input, "scatter");
      if (input.sizes() == output.sizes() && input.scalar_type() == output.scalar_type()) continue;
      impl_->refuse({.what = "an input differs from the output in shape or dtype",
                     .where = "scatter",
                     .hint = "all parts must have one shape and dtype"});
    }
  };
  comm::together(*this, check, {.retell = comm::told_at("scatter")});
  at::NoGradGuard no_grad;
  const at::Tensor target = output.detach();
  if (impl_->alone()) {
    target.copy_(inputs[0]);
    return;
  }
  const at::Tensor row = comm::to_wire(output);
  std::vector<at::Tensor> parts;
  if (is_root) {
    for (const at::Tensor& input : inputs) {
      parts.push_back(comm::to_wire(input.to(output.device())));
    }
  }
  impl_->collective(comm::operation_event("scatter from ").append(root), output,
                    [&] { return impl_->collectives_for(row).scatter(row, parts, root); });
  if (!row.is_alias_of(target)) target.copy_(comm::from_wire(row, target));
}

void Communicator::guard(std::string_view name, const std::function<void()>& operation) {
  if (impl_->alone()) return operation();
  impl_->run(comm::operation_event(name), compat::is_communication_failure, operation);
}

namespace comm {

c10::intrusive_ptr<c10d::ProcessGroup> process_group_of(Communicator& communicator) {
  return impl_of(communicator).group();
}

void require_usable(Communicator& communicator) { impl_of(communicator).require_usable(); }

}  // namespace comm
}  // namespace accelerate
