// One kind of thing that a checkpoint holds: models, optimizers, random generators.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "checkpoint/state/snapshot.h"
#include "checkpoint/state/state_reader.h"

namespace accelerate::checkpoint {

// Made for one save or one load, over objects that outlive it. One thread at a time. Only
// exchange() may talk to other ranks: all of them come there, with the same parts. check() and
// apply() must not: the ranks are given as long as they need for them.
//
// A load goes through check() on all parts and all ranks, then try_apply(), and only if nothing was
// thrown anywhere through exchange() and apply(); where a try_apply() throws, through undo() on all
// parts.
class StatePart {
 public:
  virtual ~StatePart() = default;

  // Adds files and facts. The tensors in them are those of the training.
  virtual void save(Snapshot& snapshot) const = 0;
  // Reads what this rank needs and compares it with the objects. Throws CheckpointError that lists
  // what does not fit; nothing has changed then, nor if it does not throw.
  virtual void check(StateReader& reader) = 0;
  // For parts whose objects can tell only when they are given the state whether they take it.
  virtual void try_apply() {}
  // Takes try_apply() back, as far as it came.
  virtual void undo() {}
  // Runs a step on all ranks and throws on all of them if it threw on one.
  using Together = std::function<void(const std::function<void()>& step)>;
  // What the ranks have to tell each other before apply(). Each step that ends in a collective goes
  // through `together` alone: after an error, no rank is then in the collective of a later step.
  virtual void exchange(const Together& /*together*/) {}
  // Takes over what check() has read. Nothing that the contents could be wrong about is left to
  // fail here; memory may run out.
  virtual void apply() = 0;
};

using StateParts = std::vector<std::unique_ptr<StatePart>>;

}  // namespace accelerate::checkpoint
