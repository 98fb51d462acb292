// One kind of thing that a checkpoint holds: models, optimizers, random generators.
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/snapshot.h"
#include "checkpoint/state_reader.h"

namespace accelerate::checkpoint {

// Made for one save or one load, over objects that outlive it. One thread at a time. Only apply()
// may talk to other ranks: all of them come there, with the same parts.
//
// A load goes through check() on all parts and all ranks, then try_apply(), and only if nothing was
// thrown anywhere through apply(); where a try_apply() throws, through undo() on all parts.
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
  // Takes over what check() has read.
  virtual void apply() = 0;
};

using StateParts = std::vector<std::unique_ptr<StatePart>>;

}  // namespace accelerate::checkpoint
