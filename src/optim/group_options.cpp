#include "optim/group_options.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>

namespace accelerate {
namespace {

using torch::optim::OptimizerOptions;

template <class Visit>
void visit_fields(torch::optim::SGDOptions* /*of*/, Visit visit) {
  visit(
      "lr", [](auto& options) -> auto& { return options.lr(); });
  visit(
      "momentum", [](auto& options) -> auto& { return options.momentum(); });
  visit(
      "dampening", [](auto& options) -> auto& { return options.dampening(); });
  visit(
      "weight_decay", [](auto& options) -> auto& { return options.weight_decay(); });
  visit(
      "nesterov", [](auto& options) -> auto& { return options.nesterov(); });
}

template <class Visit>
void visit_adam_fields(Visit visit) {
  visit(
      "lr", [](auto& options) -> auto& { return options.lr(); });
  visit(
      "betas", [](auto& options) -> auto& { return options.betas(); });
  visit(
      "eps", [](auto& options) -> auto& { return options.eps(); });
  visit(
      "weight_decay", [](auto& options) -> auto& { return options.weight_decay(); });
  visit(
      "amsgrad", [](auto& options) -> auto& { return options.amsgrad(); });
}
template <class Visit>
void visit_fields(torch::optim::AdamOptions* /*of*/, Visit visit) {
  visit_adam_fields(visit);
}
template <class Visit>
void visit_fields(torch::optim::AdamWOptions* /*of*/, Visit visit) {
  visit_adam_fields(visit);
}

template <class Visit>
void visit_fields(torch::optim::AdagradOptions* /*of*/, Visit visit) {
  visit(
      "lr", [](auto& options) -> auto& { return options.lr(); });
  visit(
      "lr_decay", [](auto& options) -> auto& { return options.lr_decay(); });
  visit(
      "weight_decay", [](auto& options) -> auto& { return options.weight_decay(); });
  visit(
      "initial_accumulator_value",
      [](auto& options) -> auto& { return options.initial_accumulator_value(); });
  visit(
      "eps", [](auto& options) -> auto& { return options.eps(); });
}

template <class Visit>
void visit_fields(torch::optim::RMSpropOptions* /*of*/, Visit visit) {
  visit(
      "lr", [](auto& options) -> auto& { return options.lr(); });
  visit(
      "alpha", [](auto& options) -> auto& { return options.alpha(); });
  visit(
      "eps", [](auto& options) -> auto& { return options.eps(); });
  visit(
      "weight_decay", [](auto& options) -> auto& { return options.weight_decay(); });
  visit(
      "momentum", [](auto& options) -> auto& { return options.momentum(); });
  visit(
      "centered", [](auto& options) -> auto& { return options.centered(); });
}

template <class Visit>
void visit_fields(torch::optim::LBFGSOptions* /*of*/, Visit visit) {
  visit(
      "lr", [](auto& options) -> auto& { return options.lr(); });
  visit(
      "max_iter", [](auto& options) -> auto& { return options.max_iter(); });
  visit(
      "max_eval", [](auto& options) -> auto& { return options.max_eval(); });
  visit(
      "tolerance_grad", [](auto& options) -> auto& { return options.tolerance_grad(); });
  visit(
      "tolerance_change", [](auto& options) -> auto& { return options.tolerance_change(); });
  visit(
      "history_size", [](auto& options) -> auto& { return options.history_size(); });
  visit(
      "line_search_fn", [](auto& options) -> auto& { return options.line_search_fn(); });
}

template <class Options>
bool merge_if(OptimizerOptions& one, OptimizerOptions& other, OptimizerOptions& known,
              std::vector<std::string>& contradictions) {
  if (typeid(one) != typeid(Options)) return false;
  visit_fields(static_cast<Options*>(nullptr), [&](const char* name, auto field) {
    auto& first = field(static_cast<Options&>(one));
    auto& second = field(static_cast<Options&>(other));
    auto& before = field(static_cast<Options&>(known));
    if (first == second) {
      before = first;
    } else if (second == before) {
      second = before = first;
    } else if (first == before) {
      first = before = second;
    } else {
      contradictions.emplace_back(name);
    }
  });
  return true;
}

}  // namespace

bool can_merge_options(const OptimizerOptions& options) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace): six names of it
  return typeid(options) == typeid(SGDOptions) || typeid(options) == typeid(AdamOptions) ||
         typeid(options) == typeid(AdamWOptions) || typeid(options) == typeid(AdagradOptions) ||
         typeid(options) == typeid(RMSpropOptions) || typeid(options) == typeid(LBFGSOptions);
}

std::vector<std::string> merge_options(OptimizerOptions& one, OptimizerOptions& other,
                                       OptimizerOptions& known) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace): six names of it
  std::vector<std::string> contradictions;
  (void)(merge_if<SGDOptions>(one, other, known, contradictions) ||
         merge_if<AdamOptions>(one, other, known, contradictions) ||
         merge_if<AdamWOptions>(one, other, known, contradictions) ||
         merge_if<AdagradOptions>(one, other, known, contradictions) ||
         merge_if<RMSpropOptions>(one, other, known, contradictions) ||
         merge_if<LBFGSOptions>(one, other, known, contradictions));
  return contradictions;
}

}  // namespace accelerate
