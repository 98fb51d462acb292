// The state of a rank of a job that does not run.
#pragma once

#include <accelerate/process_state.h>

#include <map>
#include <string>

namespace accelerate::test {

// Rank `rank` of `world_size`, `local_world_size` of them on each machine; all on one where it is
// 0.
inline ProcessState fake_rank(int rank, int world_size, int local_world_size = 0) {
  const int local = local_world_size == 0 ? world_size : local_world_size;
  const std::map<std::string, std::string> variables{{"RANK", std::to_string(rank)},
                                                     {"WORLD_SIZE", std::to_string(world_size)},
                                                     {"LOCAL_RANK", std::to_string(rank % local)},
                                                     {"LOCAL_WORLD_SIZE", std::to_string(local)},
                                                     {"GROUP_RANK", std::to_string(rank / local)},
                                                     {"MASTER_ADDR", "127.0.0.1"},
                                                     {"MASTER_PORT", "29500"}};
  const auto look_up = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  return ProcessState::read(look_up, 0, {});
}

}  // namespace accelerate::test
