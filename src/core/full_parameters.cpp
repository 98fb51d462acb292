#include "accelerate/full_parameters.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "accelerate/accelerator.h"
#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "comm/agreement.h"
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

// What one rank has written counts for all. Owned by the scope; made and ended by its thread.
class FromRank final : public FullParameters::Held {
 public:
  FromRank(std::unique_ptr<FullParameters::Held> pieces, std::vector<at::Tensor> whole,
           std::shared_ptr<ModelStrategy> model, std::shared_ptr<Communicator> ranks, int rank)
      : pieces_(std::move(pieces)),
        whole_(std::move(whole)),
        model_(std::move(model)),
        ranks_(std::move(ranks)),
        rank_(rank) {
    if (ranks_->rank() != rank_) return;
    for (const at::Tensor& parameter : whole_) {
      before_.push_back(model_->master_of(parameter).detach().clone());
    }
  }
  // Without end() nothing is exchanged: what this rank has written must not stay on it alone.
  ~FromRank() override {
    if (before_.empty()) return;
    try {
      size_t next = 0;
      for_each_exact([&](at::Tensor& exact) { exact.copy_(before_[next++]); });
    } catch (const std::exception& error) {
      log(LogLevel::kError,
          std::string("full_parameters: what was written cannot be taken back: ") + error.what());
    }
  }
  FromRank(const FromRank&) = delete;
  FromRank& operator=(const FromRank&) = delete;

  void end() override {
    detail::stamped(*ranks_, [this] {
      const comm::Activity activity(*ranks_, "full_parameters");
      if (pieces_) pieces_->end();
      for_each_exact([this](at::Tensor& exact) { ranks_->broadcast(exact, rank_); });
      before_.clear();
    });
  }

 private:
  void for_each_exact(const std::function<void(at::Tensor&)>& visit) const {
    const at::NoGradGuard no_grad;
    bool has_masters = false;
    for (const at::Tensor& parameter : whole_) {
      at::Tensor exact = model_->master_of(parameter);
      has_masters = has_masters || !exact.is_same(parameter);
      visit(exact);
    }
    if (has_masters) model_->masters_changed();
  }

  std::unique_ptr<FullParameters::Held> pieces_;
  std::vector<at::Tensor> whole_;
  std::vector<at::Tensor> before_;  // values of `whole_`, on the rank that writes
  std::shared_ptr<ModelStrategy> model_;
  std::shared_ptr<Communicator> ranks_;
  int rank_;
};

[[noreturn]] void refuse_full(std::string what, std::string hint) {
  throw UsageError({.what = std::move(what), .where = "full_parameters", .hint = std::move(hint)});
}

// Ranks that took different ones would wait for each other in different exchanges. Collective.
void require_same_options(Communicator& ranks, const FullParametersOptions& options) {
  const std::string own =
      std::string(options.write_back ? "write_back" : "no write_back") + " and " +
      (options.from_rank ? "from_rank " + std::to_string(*options.from_rank) : "no from_rank");
  comm::require_same(ranks, own, [](const comm::RankDifference& difference) {
    return ErrorInfo{.what = "the ranks ask for different things: " + difference.text("asks for"),
                     .where = "full_parameters",
                     .hint = "pass the same options on all ranks"};
  });
}

}  // namespace

FullParameters Accelerator::hold_full(torch::nn::Module& module,
                                      const std::shared_ptr<ModelStrategy>& model,
                                      const FullParametersOptions& options) {
  return impl_->stamped([&] {
    if (!impl_->prepared(model)) {
      refuse_full("a model that this accelerator did not prepare", "name what prepare() returned");
    }
    require_same_options(*impl_->communicator, options);
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
        std::move(held), parameters_not_in_pieces(module, model->layout()), model,
        impl_->communicator, *from));
  });
}

}  // namespace accelerate
