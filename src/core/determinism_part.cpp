#include "core/determinism_part.h"

#include <ATen/Parallel.h>

#include <string>

#include "accelerate/errors.h"
#include "core/process/determinism.h"

namespace accelerate {
namespace {

constexpr const char* kDeterminism = "determinism";

class DeterminismPart final : public checkpoint::StatePart {
 public:
  DeterminismPart(int world_size, int rank) : world_size_(world_size), rank_(rank) {}

  void save(checkpoint::Snapshot& snapshot) const override {
    if (!Determinism::is_on()) return;
    snapshot.facts()[kDeterminism] = {{"ranks", world_size_}, {"threads", at::get_num_threads()}};
  }

  void check(checkpoint::StateReader& reader) override {
    if (!Determinism::is_on() || !reader.is_ours() || rank_ != 0) return;
    const auto found = reader.facts().find(kDeterminism);
    if (found == reader.facts().end() || found->value("ranks", 0) != world_size_) return;
    const int threads = found->value("threads", 0);
    if (threads == at::get_num_threads()) return;
    throw CheckpointError(
        {.what = "saved by a deterministic run with " + std::to_string(threads) +
                 (threads == 1 ? " thread" : " threads") + " on rank 0, and this one has " +
                 std::to_string(at::get_num_threads()) + ": sums would be rounded otherwise",
         .where = reader.directory().string(),
         .hint = "set OMP_NUM_THREADS=" + std::to_string(threads) +
                 ", or leave AcceleratorOptions::deterministic out"});
  }

  void apply() override {}

 private:
  int world_size_;
  int rank_;
};

}  // namespace

std::unique_ptr<checkpoint::StatePart> determinism_part(int world_size, int rank) {
  return std::make_unique<DeterminismPart>(world_size, rank);
}

}  // namespace accelerate
