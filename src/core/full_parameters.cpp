#include "accelerate/full_parameters.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "accelerate/accelerator.h"
#include "accelerate/errors.h"
#include "comm/groups/activity.h"
#include "core/accelerator_impl.h"

namespace accelerate {
namespace {

// Those that every rank has whole anyway.
std::vector<at::Tensor> parameters_not_in_pieces(const torch::nn::Module& module,
                                                 const ModelLayout& pieces) {
  std::unordered_set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    if (pieces.contains(item.key())) seen.insert(item.value().unsafeGetTensorImpl());
  }
  std::vector<at::Tensor> whole;
  for (const at::Tensor& parameter : module.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) whole.push_back(parameter);
  }
  return whole;
}

// What one rank has written counts for all.
class FromRank final : public FullParameters::Held {
 public:
  FromRank(std::unique_ptr<FullParameters::Held> pieces, std::vector<at::Tensor> whole,
           std::shared_ptr<Communicator> ranks, int rank)
      : pieces_(std::move(pieces)),
        whole_(std::move(whole)),
        ranks_(std::move(ranks)),
        rank_(rank) {}
  void end() override {
    const at::NoGradGuard no_grad;
    if (pieces_) pieces_->end();
    for (at::Tensor& parameter : whole_) ranks_->broadcast(parameter, rank_);
  }

 private:
  std::unique_ptr<FullParameters::Held> pieces_;
  std::vector<at::Tensor> whole_;
  std::shared_ptr<Communicator> ranks_;
  int rank_;
};

[[noreturn]] void refuse_full(std::string what, std::string hint) {
  throw UsageError({.what = std::move(what), .where = "full_parameters", .hint = std::move(hint)});
}

}  // namespace

FullParameters Accelerator::hold_full(torch::nn::Module& module,
                                      const std::shared_ptr<ModelStrategy>& model,
                                      const FullParametersOptions& options) {
  return impl_->stamped([&] {
    if (!impl_->prepared(model)) {
      refuse_full("a model that this accelerator did not prepare", "name what prepare() returned");
    }
    const auto& from = options.from_rank;
    if (from && (!options.write_back || *from < 0 || *from >= num_processes())) {
      refuse_full(
          "from_rank " + std::to_string(*from) + (options.write_back ? "" : " without write_back"),
          "name a rank below " + std::to_string(num_processes()) + ", with write_back");
    }
    const comm::Activity activity(*impl_->communicator, "full_parameters");
    auto held = model->hold_full(options);
    if (!from || num_processes() == 1) return FullParameters(std::move(held));
    return FullParameters(std::make_unique<FromRank>(
        std::move(held), parameters_not_in_pieces(module, model->layout()), impl_->communicator,
        *from));
  });
}

}  // namespace accelerate
