#include "accelerate/detail/operands.h"

#include <ATen/ATen.h>

#include "accelerate/detail/number_operands.h"
#include "accelerate/detail/stamped.h"
#include "comm/groups/wire.h"

namespace accelerate::detail {
namespace {

bool is_dense(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized() &&
         !tensor.is_nested();
}

}  // namespace

void Operands::structure(const NestedPath& path, const NestedShape& shape) {
  std::string type = std::to_string(shape.size) + (shape.size == 1 ? " entry" : " entries");
  const char* separator = ": ";
  for (const std::string& key : shape.keys) {
    type += separator + ('`' + key + '`');
    separator = ", ";
  }
  nodes.push_back({.path = path.str(), .type = std::move(type)});
}

void Operands::tensor(const NestedPath& path, at::Tensor& tensor) {
  if (!tensor.defined()) {
    nodes.push_back({.path = path.str(), .type = "an undefined tensor"});
    if (nodes.back().path.empty()) refuse(path, "is an undefined tensor", "pass a dense tensor");
    return;
  }
  nodes.push_back({.path = path.str(),
                   .type = std::string(c10::toString(tensor.scalar_type())) + " on " +
                           c10::DeviceTypeName(tensor.device().type(), true),
                   .sizes = {},
                   .is_tensor = true});
  tensor_nodes.push_back(nodes.size() - 1);
  tensors.push_back(&tensor);
  // A nested tensor of libtorch has no sizes to ask for.
  if (tensor.layout() != at::kStrided || tensor.is_nested() || tensor.is_quantized()) {
    refuse(path, "is not a dense tensor", "convert it, such as by to_dense(), first");
    return;
  }
  nodes.back().sizes = tensor.sizes().vec();
}

void Operands::host_leaf(const NestedPath& path, HostLeaf leaf) {
  nodes.push_back({.path = path.str(), .type = "numbers or strings"});
  host_leaves.push_back(std::move(leaf));
}

void Operands::refuse(const NestedPath& path, const std::string& why,
                      const std::string& what_to_do) {
  refuse(OperandNode{.path = path.str()}, why, what_to_do);
}

void Operands::refuse(const OperandNode& node, const std::string& why,
                      const std::string& what_to_do) {
  if (!problem.empty()) return;
  problem = place_name(node.path) + ' ' + why;
  hint = what_to_do;
}

bool gather_alone(at::Tensor& tensor) {
  if (!is_dense(tensor)) return false;
  if (tensor.requires_grad()) tensor = tensor.detach();
  if (tensor.dim() == 0) tensor = tensor.unsqueeze(0);
  return true;
}

bool reduce_alone(at::Tensor& tensor, ReduceOp op) {
  if (!is_dense(tensor) || !comm::can_be_reduced(tensor.scalar_type())) return false;
  if (op == ReduceOp::kMean && !tensor.is_floating_point()) return false;
  if (tensor.requires_grad()) tensor = tensor.detach();
  return true;
}

bool broadcast_alone(at::Tensor& tensor) {
  if (!is_dense(tensor)) return false;
  if (tensor.requires_grad()) tensor = tensor.detach();
  return true;
}

at::Tensor no_bytes() { return at::empty({0}, at::kByte); }

at::Tensor tensor_of(const std::vector<double>& numbers, bool alone) {
  const at::Tensor tensor = at::tensor(numbers, at::kDouble);
  return alone ? tensor.squeeze(0) : tensor;
}

at::Tensor tensor_of(const std::vector<int64_t>& numbers, bool alone) {
  const at::Tensor tensor = at::tensor(numbers, at::kLong);
  return alone ? tensor.squeeze(0) : tensor;
}

void read_numbers(const at::Tensor& tensor, std::vector<double>& numbers) {
  const at::Tensor row = tensor.contiguous();
  numbers.assign(row.data_ptr<double>(), row.data_ptr<double>() + row.numel());
}

void read_numbers(const at::Tensor& tensor, std::vector<int64_t>& numbers) {
  const at::Tensor row = tensor.contiguous();
  numbers.assign(row.data_ptr<int64_t>(), row.data_ptr<int64_t>() + row.numel());
}

void refuse_narrow_result(const Communicator& ranks, const OperandNode& node, int64_t result) {
  throw_usage_error(
      ranks, {.what = place_name(node.path) + " cannot hold the result " + std::to_string(result),
              .where = "reduce",
              .hint = "make it a wider type"});
}

}  // namespace accelerate::detail
