#include "strategy/ddp/replica_check.h"

#include <torch/nn/module.h>

#include <sstream>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "comm/agreement.h"

namespace accelerate {
namespace {

std::string describe(const char* kind, const std::string& name, const at::Tensor& tensor) {
  std::ostringstream out;
  out << kind << " '" << name << "' " << tensor.scalar_type() << tensor.sizes();
  // Gradients travel in the memory order of their parameter.
  if (!tensor.is_contiguous()) out << " with strides " << tensor.strides();
  if (tensor.requires_grad()) out << " with gradient";
  return out.str();
}

// One line for each parameter and buffer, in registration order.
std::string describe(const torch::nn::Module& module) {
  std::string text;
  for (const auto& item : module.named_parameters()) {
    text += describe("parameter", item.key(), item.value()) + "\n";
  }
  for (const auto& item : module.named_buffers()) {
    text += describe("buffer", item.key(), item.value()) + "\n";
  }
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

void require_same_model(const torch::nn::Module& module, Communicator& communicator) {
  comm::require_same(communicator, describe(module), [](const comm::RankDifference& difference) {
    const auto first = lines_of(difference.first);
    const auto other = lines_of(difference.other);
    size_t line = 0;
    while (line < first.size() && line < other.size() && first[line] == other[line]) ++line;
    const auto at = [&](const std::vector<std::string>& lines) {
      return line < lines.size() ? lines[line] : std::string("nothing more");
    };
    comm::RankDifference of_line = difference;
    of_line.first = at(first);
    of_line.other = at(other);
    return ErrorInfo{.what = "the ranks hold different models: " + of_line.text("has"),
                     .where = "prepare",
                     .hint = "build the same model on all ranks"};
  });
}

}  // namespace accelerate
