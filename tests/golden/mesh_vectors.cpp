// Meshes against the reference's: how large they are, and which ranks meet on which axes.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/groups/mesh_layout.h"
#include "golden/reference_data.h"

namespace accelerate {
namespace {

using Names = std::vector<std::string>;

std::vector<bool> chosen_of(const Names& axes, const Names& names) {
  std::vector<bool> chosen;
  for (const std::string& axis : axes) {
    chosen.push_back(std::find(names.begin(), names.end(), axis) != names.end());
  }
  return chosen;
}

// What torch's DeviceMesh does: an array of all ranks in this shape, with the last axis running
// fastest; a group is what is left when all axes but those chosen are fixed.
std::vector<int> expected_ranks(int rank, const std::vector<int>& sizes,
                                const std::vector<bool>& chosen) {
  int total = 1;
  for (const int size : sizes) total *= size;
  std::vector<int> ranks;
  for (int other = 0; other < total; ++other) {
    bool meets = true;
    int stride = total;
    for (size_t axis = 0; axis < sizes.size(); ++axis) {
      stride /= sizes[axis];
      meets =
          meets && (chosen[axis] || other / stride % sizes[axis] == rank / stride % sizes[axis]);
    }
    if (meets) ranks.push_back(other);
  }
  return ranks;
}

TEST(MeshVectors, GroupsOfRecordedMeshesAreThoseOfTheReference) {
  int meshes = 0;
  for (const nlohmann::json& recorded : test::load_vectors("parallelism_config_mesh.json")) {
    if (recorded.contains("error")) continue;  // of settings, not of a mesh
    SCOPED_TRACE(recorded.dump());
    ++meshes;
    const auto axes = recorded.at("mesh_dim_names").get<Names>();
    const auto sizes = recorded.at("mesh_shape").get<std::vector<int>>();
    ASSERT_EQ(axes.size(), sizes.size());
    const auto all = std::vector<bool>(axes.size(), true);
    EXPECT_EQ(comm::ranks_on(0, sizes, all).size(), recorded.at("total_size").get<size_t>());
    const std::vector<bool> data = chosen_of(axes, recorded.at("dp_dim_names").get<Names>());
    EXPECT_EQ(comm::ranks_on(0, sizes, data).size(),
              recorded.at("data_parallel_size").get<size_t>());

    std::vector<Names> planes{{}, axes};
    for (const std::string& axis : axes) planes.push_back({axis});
    for (const char* flattened : {"dp_dim_names", "dp_cp_dim_names", "dp_shard_cp_dim_names"}) {
      planes.push_back(recorded.at(flattened).get<Names>());
    }
    for (int rank = 0; rank < recorded.at("total_size").get<int>(); ++rank) {
      for (const Names& plane : planes) {
        const std::vector<bool> chosen = chosen_of(axes, plane);
        EXPECT_EQ(comm::ranks_on(rank, sizes, chosen), expected_ranks(rank, sizes, chosen));
      }
    }
  }
  EXPECT_GT(meshes, 0);
}

}  // namespace
}  // namespace accelerate
