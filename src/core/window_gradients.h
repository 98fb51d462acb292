// The gradients of a window of accumulation that no step has used yet.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace accelerate {

// Tracks which parameters hold gradients of earlier micro-batches, so that zero_grad() leaves them
// alone. It also keeps a reference to these gradients and puts them back if they were dropped
// without the library being asked, for example by `net->zero_grad()` on the user's own module. One
// thread at a time.
class WindowGradients {
 public:
  using Parameters = std::vector<at::Tensor>;
  // The parameters of each prepared model and of each prepared optimizer.
  using Owners = std::function<std::vector<Parameters>()>;

  explicit WindowGradients(Owners owners) : owners_(std::move(owners)) {}

  // Puts back gradients that were dropped. Throws UsageError if all those of a model or an
  // optimizer were set to zero: their values are gone.
  void restore();
  // Around each backward pass. The pass of the micro-batch that `ends` the window makes the
  // gradients that it reaches complete. Throws UsageError if it adds to gradients that zero_grad()
  // has thrown away in the same micro-batch.
  void before_pass();
  void after_pass(bool ends);
  // Gradients were multiplied in place on behalf of the window.
  void refresh();

  // Whether zero_grad() must leave these gradients alone: some are of earlier micro-batches, and
  // the pass that makes them complete is still to come.
  bool holds(const Parameters& parameters) const;
  // zero_grad() throws these gradients away.
  void dropped(const Parameters& parameters);
  // A step has used these gradients.
  void used(const Parameters& parameters);
  // All present gradients are of earlier micro-batches: those that were loaded.
  void adopt_present();
  void begin_window();

 private:
  struct Kept {
    at::Tensor parameter;
    at::Tensor gradient;
    int64_t version = 0;
  };
  struct Seen {
    at::Tensor parameter;
    const void* gradient;  // null: it had none
    int64_t version;
  };

  Parameters all_parameters() const;
  void keep(const at::Tensor& parameter);
  void note_pass(const Parameters& reached, bool ends);
  void require_not_zeroed(const std::unordered_set<const void*>& changed) const;

  Owners owners_;
  // All by parameter.
  std::unordered_map<const void*, Kept> kept_;
  // Whether these gradients include some of earlier micro-batches.
  std::unordered_map<const void*, bool> complete_;
  std::unordered_set<const void*> thrown_away_;  // such gradients, in the present micro-batch
  std::vector<Seen> seen_;                       // before the pass that runs
};

}  // namespace accelerate
