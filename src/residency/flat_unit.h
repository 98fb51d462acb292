// Parameters that live together: one vector of values, one of gradients, one of masters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "accelerate/flat.h"

namespace accelerate::residency {

// The elements of `vector` from `begin` on as a tensor of its own: with a version of its own, and a
// storage that ends where it ends, so that who writes storages to a file writes no more than it.
// Keeps the memory alive.
at::Tensor part_of(const at::Tensor& vector, int64_t begin, at::IntArrayRef sizes);

// `masters`, but for elements whose `values` have other bits than `known`, what these were last set
// to: there, the values. Waits for no device.
at::Tensor with_written_values(const at::Tensor& masters, const at::Tensor& values,
                               const at::Tensor& known);

// Something that updates the masters of a unit.
class MasterUser {
 public:
  virtual ~MasterUser() = default;
  // Whether it may have changed masters since the latest updates_seen(). Asked before each forward
  // pass: cheap. `passed` tells that a pass with gradients was made since, which is all that is
  // known of some: what they say without it is certain.
  virtual bool may_have_updated(bool passed) const = 0;
  virtual void updates_seen() = 0;
  // The unit gives its parameters back: see FlatUnit::release().
  virtual void unit_released() = 0;
};

// The unit in which parameters are stored (see FlatOptions): flat values in the type that the model
// computes with, flat float32 gradients, and flat float32 masters where the values are narrower.
// Parameters with two or more dimensions come first; each begins at a multiple of 64 elements, and
// places between them are zero in all vectors. One thread at a time.
class FlatUnit {
 public:
  // Moves `parameters`, each once, into the vectors. Throws UsageError if they cannot go together;
  // nothing has changed then.
  FlatUnit(std::vector<at::Tensor> parameters, std::vector<std::string> names,
           const FlatOptions& options);
  FlatUnit(const FlatUnit&) = delete;
  FlatUnit& operator=(const FlatUnit&) = delete;

  const FlatOptions& options() const { return options_; }
  // In the order of the vectors.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const std::vector<std::string>& names() const { return names_; }
  const at::Tensor& values() const { return values_; }
  const at::Tensor& gradient() const { return gradient_; }
  // Undefined without masters, and where the values are float32 themselves.
  const at::Tensor& masters() const { return masters_; }
  // What updates are made on: a leaf whose .grad() is the part of gradient(). The parameter itself
  // where there are no masters.
  const at::Tensor& master(size_t index) const {
    return master_parts_.empty() ? parameters_[index] : master_parts_[index];
  }
  const at::Tensor& gradient_part(size_t index) const { return gradient_parts_[index]; }
  // Where the elements of a parameter begin in the vectors, and where the next one's do.
  int64_t begin(size_t index) const { return places_[index]; }
  int64_t end(size_t index) const { return places_[index + 1]; }
  int64_t numel() const { return places_.back(); }
  // How many elements at the beginning belong to parameters of two or more dimensions.
  int64_t matrix_numel() const { return matrix_numel_; }
  // The number of a parameter, or of the parameter of a master.
  std::optional<size_t> find(const at::Tensor& tensor) const;
  // Whether `tensors` contain all parameters of this unit; `others` gets those that are not of it.
  bool is_covered_by(at::TensorList tensors, std::vector<at::Tensor>& others) const;

  // --- gradients ---

  // A parameter has a gradient from the pass that adds to it until it is dropped, as in torch:
  // .grad() of it and of its master is then its part of gradient(). All others have none, and their
  // parts are zeros: so norms, averages and updates see of a unit what they see of other
  // parameters.

  // Where the gradient of a parameter or of its master was dropped, drops the other too.
  void mirror_dropped_gradients();
  // Takes over what was done to .grad() from outside: gradients that were dropped become zeros in
  // the vector, others are copied to it.
  void put_gradients_back();
  // Before a backward pass, after put_gradients_back(): lets it add to the parts of parameters
  // without gradient too. After it: those to which it has added have one, the rest none.
  void offer_gradients();
  void withdraw_gradients();
  // Between the two: the parameters that were added to.
  std::vector<size_t> reached() const;
  // Whether put_gradients_back() would copy something.
  bool has_foreign_gradients() const;
  // As it was left by the last of these calls.
  bool has_gradient(size_t index) const { return gradients_[index].state == GradientState::kThere; }
  std::vector<size_t> with_gradient() const;
  // Something else than a pass has written to the parts of these.
  void declare_gradients(const std::vector<size_t>& indices);
  // Drops all of them, in one pass, or those of some parameters; where they are not `set_to_none`
  // they stay, as zeros.
  void drop_gradients(bool set_to_none = true);
  void drop_gradients(const std::vector<size_t>& indices, bool set_to_none = true);
  // The same where a replay has set the parts to zero already.
  void note_dropped(const std::vector<size_t>& indices);

  // A scaling of all gradients that is left to the next update.
  struct Clip {
    at::Tensor norm{};  // of the gradients: a float32 scalar on the device
    double max_norm = 0;
  };
  void defer_clip(Clip clip) { clip_ = std::move(clip); }
  // Takes it away; undefined norm: there is none.
  Clip take_clip() { return std::exchange(clip_, Clip{}); }
  // Scales the gradients now.
  void settle_clip();
  bool has_clip() const { return clip_.norm.defined(); }
  // Whether the one update of all parameters makes it, so that it may be deferred.
  void set_update_clips(bool clips) { update_clips_ = clips; }
  bool update_clips() const;

  // --- values and masters ---

  // Rounds the masters to the values, all of them: for an update, which then says of which
  // parameters it was.
  void masters_to_values();
  // The same where something else has written to the masters.
  void masters_moved();
  // An update has moved the values and the masters of parameters `indices`. Graphs that need the
  // values of before are refused from here on, as torch refuses them.
  void values_updated(const std::vector<size_t>& indices);
  // Before values or masters are used: takes over what was written to parameters in place, and what
  // optimizers have done to the masters without being asked to tell. Throws UsageError if a
  // parameter has left the vector; `where` is what the user called.
  void refresh(const char* where);
  // After refresh(), before masters are updated or read: takes over what was written to values in
  // any way, also through .data() or a pointer, which leaves no trace. Masters of elements that
  // nothing has written to keep what they have beyond the rounded value.
  void adopt_written_values();
  void adopt_written_values(size_t index);
  // An update has set the values of these elements to their rounded masters.
  void note_rounded(int64_t begin, int64_t end);
  // Changes with every write to a parameter that refresh() would take over.
  std::vector<int64_t> versions_of_values() const;
  // The part of refresh() that looks and changes nothing.
  void require_in_place(const char* where) const;
  // A forward pass that keeps a graph follows.
  void note_pass();

  // One that has made no update so far. Takes the place of those that are gone.
  void add_user(const std::shared_ptr<MasterUser>& user);

  // Gives the parameters back: where there are masters they are float32 again, in the memory of
  // these. The unit is of no use afterwards.
  void release();
  bool is_released() const { return released_; }

 private:
  enum class GradientState {
    kNone,     // .grad() is undefined, the part is zeros
    kOffered,  // .grad() is the part, to which nothing was added
    kThere
  };
  struct Gradient {
    GradientState state = GradientState::kNone;
    int64_t offered_version = 0;
  };

  void adopt_changed_values();
  void adopt_between(int64_t begin, int64_t end);
  // What users say about updates that nobody has taken over.
  struct Moved {
    bool maybe = false;
    bool surely = false;
    bool unknown = false;  // since a user is gone, and cannot be asked
  };
  Moved moved_by_users() const;
  bool was_added_to(size_t index) const;
  void place_gradient(size_t index, GradientState state);
  void remove_gradient(size_t index);
  void zero_parts(const std::vector<size_t>& indices);

  FlatOptions options_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<int64_t> places_{0};
  int64_t matrix_numel_ = 0;
  at::Tensor values_;
  at::Tensor gradient_;
  at::Tensor masters_;
  std::vector<at::Tensor> gradient_parts_;  // their versions tell which of them was written to
  std::vector<Gradient> gradients_;
  std::vector<at::Tensor> master_parts_;
  std::vector<int64_t> versions_;  // of the parameters, when they were last looked at
  // The values as the masters were last rounded to them. Where a user cannot tell whether it has
  // moved masters: without it, what was written to the values would look like an update.
  at::Tensor rounded_;
  std::unordered_map<const void*, size_t> indices_;  // of parameters and masters
  std::vector<std::weak_ptr<MasterUser>> users_;
  Clip clip_;
  bool update_clips_ = false;
  bool passed_ = false;  // since values and masters were made to agree
  bool released_ = false;
};

}  // namespace accelerate::residency
