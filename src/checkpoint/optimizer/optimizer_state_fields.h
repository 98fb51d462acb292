// The fields of options and states of each kind of optimizer, in the order of Python's dicts. Each
// list is walked by a writer and by a reader; see optimizer_state_visitors.h.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace accelerate {

struct SgdFields {
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static constexpr const char* kName = "SGD";
  static constexpr bool kNeedsAllStates = false;

  template <class O, class Visitor>
  static void options(O& options, Visitor& visit) {
    visit.number("lr", options.lr());
    visit.number("momentum", options.momentum());
    visit.number("dampening", options.dampening());
    visit.number("weight_decay", options.weight_decay());
    visit.boolean("nesterov", options.nesterov());
    visit.only_false("maximize");
    visit.without_effect("foreach", {});
    visit.without_effect("differentiable", false);
    visit.without_effect("fused", {});
  }
  template <class S, class Visitor>
  static void state(const Options& /*options*/, S& state, Visitor& visit) {
    visit.tensor("momentum_buffer", state.momentum_buffer(), /*is_needed=*/false);
  }
};

template <class OwnOptions, class OwnState, bool kDecoupled>
struct AdamLikeFields {
  using Options = OwnOptions;
  using State = OwnState;
  static constexpr const char* kName = kDecoupled ? "AdamW" : "Adam";
  static constexpr bool kNeedsAllStates = false;

  template <class O, class Visitor>
  static void options(O& options, Visitor& visit) {
    visit.number("lr", options.lr());
    visit.two_numbers("betas", options.betas());
    visit.number("eps", options.eps());
    visit.number("weight_decay", options.weight_decay());
    visit.boolean("amsgrad", options.amsgrad());
    visit.only_false("maximize");
    visit.without_effect("foreach", {});
    visit.without_effect("capturable", false);
    visit.without_effect("differentiable", false);
    visit.without_effect("fused", {});
    visit.decoupled_weight_decay(kDecoupled, options.weight_decay());
  }
  template <class S, class Visitor>
  static void state(const Options& options, S& state, Visitor& visit) {
    visit.step("step", state.step());
    visit.tensor("exp_avg", state.exp_avg(), /*is_needed=*/true);
    visit.tensor("exp_avg_sq", state.exp_avg_sq(), /*is_needed=*/true);
    visit.tensor("max_exp_avg_sq", state.max_exp_avg_sq(), /*is_needed=*/options.amsgrad());
  }
};
using AdamFields =
    AdamLikeFields<torch::optim::AdamOptions, torch::optim::AdamParamState, /*kDecoupled=*/false>;
using AdamWFields =
    AdamLikeFields<torch::optim::AdamWOptions, torch::optim::AdamWParamState, /*kDecoupled=*/true>;

struct AdagradFields {
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  static constexpr const char* kName = "Adagrad";
  static constexpr bool kNeedsAllStates = true;  // made by the constructor, expected by step()

  template <class O, class Visitor>
  static void options(O& options, Visitor& visit) {
    visit.number("lr", options.lr());
    visit.number("lr_decay", options.lr_decay());
    visit.number("eps", options.eps());
    visit.number("weight_decay", options.weight_decay());
    visit.number("initial_accumulator_value", options.initial_accumulator_value());
    visit.without_effect("foreach", {});
    visit.only_false("maximize");
    visit.without_effect("differentiable", false);
    visit.without_effect("fused", {});
  }
  template <class S, class Visitor>
  static void state(const Options& /*options*/, S& state, Visitor& visit) {
    visit.step("step", state.step());
    visit.tensor("sum", state.sum(), /*is_needed=*/true);
  }
};

struct RmspropFields {
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  static constexpr const char* kName = "RMSprop";
  static constexpr bool kNeedsAllStates = false;

  template <class O, class Visitor>
  static void options(O& options, Visitor& visit) {
    visit.number("lr", options.lr());
    visit.number("momentum", options.momentum());
    visit.number("alpha", options.alpha());
    visit.number("eps", options.eps());
    visit.boolean("centered", options.centered());
    visit.number("weight_decay", options.weight_decay());
    visit.without_effect("capturable", false);
    visit.without_effect("foreach", {});
    visit.only_false("maximize");
    visit.without_effect("differentiable", false);
  }
  template <class S, class Visitor>
  static void state(const Options& options, S& state, Visitor& visit) {
    visit.step("step", state.step());
    visit.tensor("square_avg", state.square_avg(), /*is_needed=*/true);
    visit.tensor("momentum_buffer", state.momentum_buffer(), options.momentum() > 0);
    visit.tensor("grad_avg", state.grad_avg(), options.centered());
  }
};

// One state, kept for the first parameter, over all elements of all parameters in a row.
struct LbfgsFields {
  using Options = torch::optim::LBFGSOptions;
  using State = torch::optim::LBFGSParamState;
  static constexpr const char* kName = "LBFGS";
  static constexpr bool kNeedsAllStates = false;

  template <class O, class Visitor>
  static void options(O& options, Visitor& visit) {
    visit.number("lr", options.lr());
    visit.integer("max_iter", options.max_iter());
    visit.optional_integer("max_eval", options.max_eval());
    visit.number("tolerance_grad", options.tolerance_grad());
    visit.number("tolerance_change", options.tolerance_change());
    visit.integer("history_size", options.history_size());
    visit.optional_text("line_search_fn", options.line_search_fn());
  }
  template <class S, class Visitor>
  static void state(const Options& /*options*/, S& state, Visitor& visit) {
    visit.integer("func_evals", state.func_evals());
    visit.integer("n_iter", state.n_iter());
    visit.free_tensor("d", state.d());
    visit.number("t", state.t());
    visit.free_tensors("old_dirs", state.old_dirs());
    visit.free_tensors("old_stps", state.old_stps());
    visit.free_tensors("ro", state.ro());
    visit.free_tensor("H_diag", state.H_diag());
    visit.free_tensor("prev_flat_grad", state.prev_flat_grad());
    visit.number("prev_loss", state.prev_loss());
    visit.optional_tensors("al", state.al());
  }
};

}  // namespace accelerate
