// Keeps the small gradients of half precision alive: the loss is multiplied by a scale, the
// gradients are divided by it, and the scale adapts to what half precision can hold.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/state_dict.h"

namespace torch::optim {
class Optimizer;
}

namespace accelerate {

struct GradScalerOptions {
  double init_scale = 65536.0;
  // What the scale is multiplied by after `growth_interval` updates in a row without overflow, and
  // after an update with one.
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  // So many updates with an overflow until the scale shrinks, and then with every one, until the
  // scale grows again; of those in a row, until an update without one.
  int64_t hysteresis = 1;
  bool overflows_in_a_row = false;
  // It does not shrink below this.
  double min_scale = 0;
  // False: the scale stays as it is. Updates with an overflow are left out all the same.
  bool adapts = true;
  // False: scale() and step() pass through, update() does nothing.
  bool enabled = true;
};

// One for each accelerator. An iteration is
//   scaler.scale(loss).backward();  scaler.unscale_(optimizer);  clip;  scaler.step(optimizer);
//   scaler.update();
// where unscale_() can be left out if nothing reads the gradients in between. With several
// optimizers each has its own unscale_() and step(), and one update() ends the iteration.
//
// The scale lives on the device of the first loss. Nothing waits for the device but step(), which
// must know whether to update, and the readers: step_was_skipped(), scale_factor(),
// growth_tracker(), state_dict(). Not collective: gradients that were averaged over the ranks
// overflow on all of them alike. One thread at a time. Calls in the wrong order throw
// UsageError and change nothing.
class ACCELERATE_EXPORT GradScaler {
 public:
  // Throws UsageError for factors on the wrong side of 1, or a scale that is not positive.
  explicit GradScaler(const GradScalerOptions& options = {});

  bool enabled() const { return options_.enabled; }
  const GradScalerOptions& options() const { return options_; }

  // `loss` multiplied by the scale, on its own device.
  at::Tensor scale(const at::Tensor& loss);

  // Divides the gradients of this optimizer by the scale, in place, and notes whether one of them
  // is not finite. At most once before step(). Does nothing for an optimizer without gradients:
  // those that come later are still scaled, and step() unscales them. Throws UsageError for
  // gradients in half precision: parameters stay in float32.
  // NOLINTNEXTLINE(readability-identifier-naming): torch's name
  void unscale_(torch::optim::Optimizer& optimizer);
  // The same for an optimizer whose groups hold pieces of `parameters`, on this rank: divides the
  // gradients of these, which may be none. `agree` is given what was found here, a scalar that is
  // not 0 after an overflow, and makes it what all ranks have found.
  // NOLINTNEXTLINE(readability-identifier-naming): torch's name
  void unscale_(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters,
                const std::function<void(at::Tensor& found_inf)>& agree);
  // Whether unscale_() found gradients of it, or step() was called, since the last update().
  bool is_unscaled(const torch::optim::Optimizer& optimizer) const;

  // Unscales, unless that is done, and runs `update_parameters`, or optimizer.step(), if all
  // gradients are finite. Returns whether it did. Once for each optimizer before update().
  bool step(torch::optim::Optimizer& optimizer, const std::function<void()>& update_parameters);
  bool step(torch::optim::Optimizer& optimizer);
  // The same for an update that itself changes nothing where the scalar it is given is not 0, so
  // that nothing has to wait for the device. Returns that scalar.
  at::Tensor step_on_device(torch::optim::Optimizer& optimizer,
                            const std::function<void(const at::Tensor& found_inf)>& update);
  // Whether the scale is on a device that the host would have to wait for.
  bool on_device() const { return scale_.defined() && !scale_.is_cpu(); }
  // Whether the last step() of this optimizer found an overflow; stays until its next one.
  bool step_was_skipped(const torch::optim::Optimizer& optimizer) const;

  // Ends the iteration: shrinks the scale if any optimizer met an overflow, else grows it when its
  // time has come. Throws UsageError if no optimizer was unscaled or stepped since the last one.
  void update();
  // Ends the iteration and continues with this scale.
  void update(double new_scale);
  // Ends the iteration as if it had not begun: the scale stays as it is.
  void abandon() { iteration_.clear(); }

  double scale_factor() const;
  // Updates without overflow since the scale last changed.
  int64_t growth_tracker() const;

  // With torch's names: "scale", "growth_factor", "backoff_factor", "growth_interval" and
  // "_growth_tracker"; with a hysteresis "_hysteresis_tracker" too. Empty if disabled.
  StateDict state_dict() const;
  // Restores such a state; also ends an iteration in progress. Throws CheckpointError that names
  // what is missing or wrong; then nothing has changed.
  void load_state_dict(const StateDict& state);

 private:
  enum class Stage { kUnscaled, kStepped };
  struct OptimizerState {
    Stage stage;
    at::Tensor found_inf;  // on the device of the scale; 0 or more
  };

  void require_scale(const char* where) const;
  OptimizerState& before_step(torch::optim::Optimizer& optimizer);
  void require_first_unscale(const torch::optim::Optimizer& optimizer) const;
  at::Tensor unscale_gradients(const std::vector<at::Tensor>& parameters) const;
  void adapt_slowly(const at::Tensor& found_inf);

  GradScalerOptions options_;
  // Float and int32 tensors without dimensions; undefined until the first loss.
  at::Tensor scale_;
  at::Tensor growth_tracker_;
  at::Tensor hysteresis_tracker_;  // overflows that are still let pass; int32, where there are any
  // Both on the host, until the tensors are made.
  double initial_scale_;
  int64_t initial_growth_tracker_ = 0;
  int64_t initial_hysteresis_tracker_ = 1;
  std::map<const torch::optim::Optimizer*, OptimizerState> iteration_;
  std::map<const torch::optim::Optimizer*, at::Tensor> found_at_last_step_;
};

}  // namespace accelerate
