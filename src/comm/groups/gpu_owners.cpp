#include "comm/groups/gpu_owners.h"

#include <map>
#include <vector>

#include "accelerate/errors.h"
#include "comm/rendezvous/rendezvous.h"

namespace accelerate::comm {

void require_gpu_of_its_own(c10d::Store& store, int rank, int world_size, const std::string& gpu) {
  const auto key = [](int of) { return "gpu/" + std::to_string(of); };
  std::vector<std::string> keys;
  for (int other = 0; other < world_size; ++other) keys.push_back(key(other));
  store.set(key(rank), gpu);
  const std::vector<std::vector<uint8_t>> gpus = store.multiGet(keys);

  std::map<std::string, std::vector<int>> owners;
  for (int other = 0; other < world_size; ++other) {
    owners[std::string(gpus[other].begin(), gpus[other].end())].push_back(other);
  }
  std::string shared;
  for (const auto& [name, ranks] : owners) {
    if (ranks.size() == 1) continue;
    shared += (shared.empty() ? "" : "; ") + list_ranks(ranks) + " share one GPU (" + name + ")";
  }
  if (shared.empty()) return;
  UsageError error(
      {.what = shared + ", which NCCL refuses",
       .where = "process group",
       .hint = "start one rank per GPU, or set .process_group = {.cuda_backend = kGloo}; tests on "
               "few GPUs may share them over NCCL: accelerate launch --share_gpus, or "
               "ACCELERATE_SHARE_GPUS=true"});
  error.set_rank(rank, world_size);
  throw error;
}

}  // namespace accelerate::comm
