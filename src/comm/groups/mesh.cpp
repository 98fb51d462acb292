#include "accelerate/mesh.h"

#include <algorithm>
#include <map>
#include <utility>

#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "comm/agreement.h"
#include "comm/groups/mesh_layout.h"

namespace accelerate {
namespace {

// "dp = 2, tp = 4"
std::string axes_text(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& axis : axes) {
    text += (text.empty() ? "" : ", ") + axis.name + " = " + std::to_string(axis.size);
  }
  return text.empty() ? "no axes" : text;
}

// What is wrong with them; empty if nothing is.
std::string problem_of(const std::vector<MeshAxis>& axes, int ranks) {
  int64_t product = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name.empty()) return "an axis has no name";
    if (axes[i].size < 1) return "the axis " + axes[i].name + " has no ranks";
    for (size_t before = 0; before < i; ++before) {
      if (axes[before].name == axes[i].name) return "two axes have the name " + axes[i].name;
    }
    product *= axes[i].size;
    if (product > ranks) break;
  }
  if (product == ranks) return {};
  if (axes.empty()) return "a mesh without axes is for one rank, not for " + std::to_string(ranks);
  return "the sizes of " + axes_text(axes) + " do not multiply to the number of ranks, which is " +
         std::to_string(ranks);
}

}  // namespace

class Mesh::Grid {
 public:
  Grid(Communicator& ranks, std::vector<MeshAxis> axes) : ranks_(ranks), axes_(std::move(axes)) {
    comm::require_same(ranks_, axes_text(axes_), [](const comm::RankDifference& difference) {
      return ErrorInfo{.what = "the ranks lay out different meshes: " + difference.text("with"),
                       .where = "Mesh",
                       .hint = "give the same axes on all ranks"};
    });
    if (const std::string problem = problem_of(axes_, ranks_.world_size()); !problem.empty()) {
      refuse(problem, "give axes whose sizes multiply to the number of ranks, each with a name");
    }
    for (const MeshAxis& axis : axes_) sizes_.push_back(axis.size);
    coordinates_ = comm::coordinates_of(ranks_.rank(), sizes_);
    for (const MeshAxis& axis : axes_) (void)open({axis.name});
  }

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int coordinate(std::string_view axis) const { return coordinates_[index_of(axis)]; }

  // Collective, the first time.
  Communicator& open(const std::vector<std::string_view>& names) {
    std::vector<bool> chosen(axes_.size(), false);
    for (const std::string_view name : names) chosen[index_of(name)] = true;
    const auto found = groups_.find(chosen);
    if (found != groups_.end()) return found->second ? *found->second : ranks_;
    const std::vector<int> members = comm::ranks_on(ranks_.rank(), sizes_, chosen);
    const bool has_all = static_cast<int>(members.size()) == ranks_.world_size();
    const auto group = has_all ? nullptr : std::shared_ptr<Communicator>(ranks_.split(members[0]));
    groups_.emplace(chosen, group);
    return group ? *group : ranks_;
  }

 private:
  size_t index_of(std::string_view name) const {
    const auto found = std::find_if(axes_.begin(), axes_.end(),
                                    [&](const MeshAxis& axis) { return axis.name == name; });
    if (found != axes_.end()) return static_cast<size_t>(found - axes_.begin());
    refuse("the mesh has no axis " + std::string(name), "it has " + axes_text(axes_));
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& hint) const {
    detail::throw_usage_error(ranks_, {.what = what, .where = "Mesh", .hint = hint});
  }

  Communicator& ranks_;
  const std::vector<MeshAxis> axes_;
  std::vector<int> sizes_;
  std::vector<int> coordinates_;
  std::map<std::vector<bool>, std::shared_ptr<Communicator>> groups_;  // by axes; null: all ranks
};

Mesh::Mesh(Communicator& ranks, std::vector<MeshAxis> axes)
    : grid_(std::make_unique<Grid>(ranks, std::move(axes))) {}
Mesh::~Mesh() = default;

const std::vector<MeshAxis>& Mesh::axes() const { return grid_->axes(); }
int Mesh::coordinate(std::string_view axis) const { return grid_->coordinate(axis); }
Communicator& Mesh::axis(std::string_view name) { return grid_->open({name}); }
Communicator& Mesh::plane(const std::vector<std::string_view>& names) { return grid_->open(names); }

}  // namespace accelerate
