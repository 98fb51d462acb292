#include "core/iteration_part.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "files/manifest/checkpoint_directory.h"
#include "files/manifest/checkpoint_names.h"

namespace accelerate {
namespace {

constexpr const char* kIteration = "iteration";

// -1 for a name that automatic naming does not give.
int64_t number_of(const std::string& name) {
  const auto parts = files::series_name(name);
  return parts && files::numbered_name(parts->number) == name ? parts->number : -1;
}

class IterationPart final : public checkpoint::StatePart {
 public:
  IterationPart(ProjectOptions& project, std::filesystem::path series_folder, Communicator& ranks,
                bool looks)
      : project_(project), series_folder_(std::move(series_folder)), ranks_(ranks), looks_(looks) {}

  void save(checkpoint::Snapshot& snapshot) const override {
    snapshot.facts()[kIteration] = project_.iteration;
  }

  void check(checkpoint::StateReader& reader) override {
    if (!looks_) return;
    int64_t newest = number_of(reader.directory().filename().string());
    if (const auto found = reader.facts().find(kIteration); found != reader.facts().end()) {
      newest = std::max(newest, found->get<int64_t>());
    }
    if (project_.automatic_checkpoint_naming && std::filesystem::is_directory(series_folder_)) {
      for (const auto& entry : files::list_checkpoints(series_folder_)) {
        newest = std::max(newest, number_of(entry.name));
      }
    }
    if (newest == std::numeric_limits<int64_t>::max()) {
      throw CheckpointError(
          {.what = "no checkpoint number is left after " + files::numbered_name(newest),
           .where = reader.directory().string(),
           .hint = "give the checkpoint of that number another name"});
    }
    next_ = newest + 1;
  }

  void exchange(const Together& together) override {
    together([&] {
      for (const std::string& of_rank : ranks_.all_gather_bytes(std::to_string(next_))) {
        next_ = std::max<int64_t>(next_, std::stoll(of_rank));
      }
    });
  }

  void apply() override { project_.iteration = next_; }

 private:
  ProjectOptions& project_;
  std::filesystem::path series_folder_;
  Communicator& ranks_;
  bool looks_;
  int64_t next_ = 0;
};

}  // namespace

std::unique_ptr<checkpoint::StatePart> iteration_part(ProjectOptions& project,
                                                      std::filesystem::path series_folder,
                                                      Communicator& ranks, bool looks) {
  return std::make_unique<IterationPart>(project, std::move(series_folder), ranks, looks);
}

}  // namespace accelerate
