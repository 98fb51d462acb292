// Ranks that each are a node of their own, without a common file system.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "multiproc/resume_training.h"

namespace accelerate::test {

// To be called before the rank makes an accelerator.
inline void become_node(int rank) {
  setenv("LOCAL_RANK", "0", 1);
  setenv("LOCAL_WORLD_SIZE", "1", 1);
  setenv("GROUP_RANK", std::to_string(rank).c_str(), 1);
}

inline ProjectOptions project_of_node(const StateFolder& folder, int rank) {
  return {.project_dir = folder / ("node_" + std::to_string(rank)),
          .automatic_checkpoint_naming = true,
          .save_on_each_node = true};
}

}  // namespace accelerate::test
