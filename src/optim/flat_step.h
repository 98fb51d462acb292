// Updates of parameters that live in flat units.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "optim/optimizer_step.h"
#include "residency/flat_unit.h"

namespace accelerate {

using FlatUnits = std::vector<std::shared_ptr<residency::FlatUnit>>;

// Whether all of the optimizer is updated in flat vectors: AdamW, where the device has a kernel or
// `units` ask for what only such an update does. Throws UsageError if they ask another optimizer
// for it.
bool takes_flat_update(const torch::optim::Optimizer& optimizer, const FlatUnits& units);

// Updates the masters by `plain`, the way that the optimizer is updated without units, and copies
// them to the values.
class MasterStep final : public OptimizerStep {
 public:
  MasterStep(std::unique_ptr<OptimizerStep> plain, FlatUnits units)
      : plain_(std::move(plain)), units_(std::move(units)) {}
  at::Tensor step(LossClosure closure) override;
  bool can_look_on_device() const override { return plain_->can_look_on_device(); }
  void step_unless(const at::Tensor& found_inf) override;
  void ended(bool skipped) override { plain_->ended(skipped); }
  const char* name() const override { return plain_->name(); }

 private:
  void settle() const;
  void refresh() const;

  std::unique_ptr<OptimizerStep> plain_;
  FlatUnits units_;
};

// AdamW by as few kernels as its groups allow: one for each stretch of a unit whose parameters have
// gradients, the same options and the same count of updates, and one where they differ in weight
// decay alone and the later ones have none. The kernel reads rate, count and norm from the device,
// so that a graph can hold it. The state of the optimizer is where torch keeps it; its moments are
// parts of flat vectors, into which those that were loaded are copied. What such kernels cannot do
// (amsgrad, parameters of no unit) is left to MasterStep where there are masters, and is a
// UsageError elsewhere.
class FlatAdamWStep final : public OptimizerStep {
 public:
  // `optimizer` is an AdamW whose groups hold masters of `units`.
  FlatAdamWStep(torch::optim::Optimizer& optimizer, FlatUnits units);
  at::Tensor step(LossClosure closure) override;
  bool can_look_on_device() const override { return true; }
  void step_unless(const at::Tensor& found_inf) override;
  void ended(bool skipped) override;
  const char* name() const override { return "flat"; }

  // How many kernels the latest update took; 0 if MasterStep made it.
  size_t launches() const { return launches_; }

 private:
  // One parameter.
  struct Place {
    size_t unit = 0;
    size_t index = 0;  // in the unit
    size_t group = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };
  // What one kernel updates: neighbours, with the options of the first one's group.
  struct Run {
    size_t first = 0;  // place
    int64_t begin = 0;
    int64_t end = 0;
    int64_t decayed = 0;
    friend bool operator==(const Run&, const Run&) = default;
  };
  // Of one unit.
  struct Moments {
    at::Tensor average{};
    at::Tensor square{};
  };
  // Of the run with one number, on the device and as the host knows them.
  struct Scalars {
    at::Tensor rate{};
    at::Tensor count{};
    double known_rate = -1;
    int64_t known_count = -1;
  };
  // Whether each of places_ is updated.
  using Updated = std::vector<bool>;

  // Whether all parameters stand in units, each once; finds their places.
  bool arrange();
  // Makes state that is missing and brings that which is elsewhere here, of parameters that have
  // gradients. False if a group wants more than two moments.
  bool enter();
  void enter_state(const Place& place);
  const at::Tensor& master_at(const Place& place) const;
  // How many updates it has had.
  int64_t count_of(const Place& place) const;
  std::vector<Run> runs(const Updated& updated) const;
  void make_scalars(size_t runs);
  void write_rate(Scalars& scalars, const Run& run);
  void follow_replays(const std::vector<Run>& runs);
  void update(const Run& run, const Scalars& scalars, const residency::FlatUnit::Clip& clip) const;
  void count(int64_t change) const;
  bool holds_state(const Updated& updated) const;
  void leave_to_masters(const char* why);

  torch::optim::Optimizer& optimizer_;
  FlatUnits units_;
  MasterStep by_masters_;
  std::vector<Moments> moments_;  // by unit
  std::vector<Scalars> scalars_;  // by run
  std::vector<Place> places_;     // in the order of the vectors
  Updated updated_;               // by the latest update
  std::vector<size_t> group_sizes_;
  bool arranged_ = false;
  at::Tensor found_inf_;
  bool made_by_masters_ = false;
  size_t launches_ = 0;
};

}  // namespace accelerate
