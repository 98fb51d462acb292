#include "compat/graph_leaves.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace accelerate::compat {

std::vector<at::Tensor> leaves_of(const at::Tensor& loss) {
  std::vector<at::Tensor> leaves;
  if (!loss.defined() || !loss.requires_grad()) return leaves;
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open;
  const auto visit = [&](const torch::autograd::Edge& edge) {
    if (edge.function && seen.insert(edge.function.get()).second) {
      open.push_back(edge.function.get());
    }
  };
  visit(torch::autograd::impl::gradient_edge(loss));
  while (!open.empty()) {
    torch::autograd::Node* node = open.back();
    open.pop_back();
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
      leaves.push_back(leaf->variable);
    }
    for (const auto& edge : node->next_edges()) visit(edge);
  }
  return leaves;
}

}  // namespace accelerate::compat
