// The ranks of a group as a grid with named axes: data parallel in one direction, tensor parallel
// in the other.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/export.h"

namespace accelerate {

struct MeshAxis {
  std::string name{};
  int size = 1;
};

// The last axis runs fastest, as in torch's DeviceMesh: of {"dp", 2}, {"tp", 4} ranks 0 to 3 are
// the first tensor-parallel group, and ranks 0 and 4 are the first data-parallel one.
class ACCELERATE_EXPORT Mesh {
 public:
  // Opens a group for each axis. Collective over `ranks`, which must outlive the mesh; the same
  // axes on all of them. UsageError unless the sizes multiply to the number of ranks and the names
  // differ.
  Mesh(Communicator& ranks, std::vector<MeshAxis> axes);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const std::vector<MeshAxis>& axes() const;
  // Where this rank stands on an axis. UsageError for a name that no axis has, here and below.
  int coordinate(std::string_view axis) const;

  // The ranks that differ from this one on this axis alone, in its order. Not collective.
  Communicator& axis(std::string_view name);

  // The ranks that differ from this one on these axes alone, in the order of the mesh, whatever the
  // order of the names. The first call with a set of axes opens the group: collective over the
  // whole mesh.
  Communicator& plane(const std::vector<std::string_view>& names);

 private:
  class ACCELERATE_HIDDEN Grid;
  std::unique_ptr<Grid> grid_;
};

}  // namespace accelerate
