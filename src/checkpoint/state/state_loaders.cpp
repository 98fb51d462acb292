#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "checkpoint/state/state_parts.h"

namespace accelerate::checkpoint {
namespace {

constexpr const char* kSamplerStem = "sampler";
constexpr const char* kSamplerExtension = ".bin";

TorchValue loader_value(const LoaderState& state) {
  return TorchDict{{"seed", static_cast<int64_t>(state.seed)},
                   {"epoch", state.epoch},
                   {"position", state.position},
                   {"counts_batches", state.counts_batches},
                   {"size", state.size}};
}

LoaderState to_state(const TorchValue& value) {
  const TorchDict& dict = value.as_dict();
  return {.seed = static_cast<uint64_t>(dict.at("seed").as_integer()),
          .epoch = dict.at("epoch").as_integer(),
          .position = dict.at("position").as_integer(),
          .counts_batches = dict.at("counts_batches").as_bool(),
          .size = dict.at("size").as_integer()};
}

class LoadersPart final : public StatePart {
 public:
  explicit LoadersPart(std::vector<std::shared_ptr<detail::FollowedLoader>> loaders)
      : loaders_(std::move(loaders)) {}

  void save(Snapshot& snapshot) const override {
    if (!snapshot.writes_shared_files()) return;
    size_t number = 0;
    for (const auto& loader : loaders_) {
      if (const auto state = loader->state()) {
        snapshot.add(numbered_file(kSamplerStem, number++, kSamplerExtension),
                     loader_value(*state));
      }
    }
  }

  void check(StateReader& reader) override {
    if (!reader.is_ours()) {
      if (!loaders_.empty()) reader.note("where the loaders stood: they start from the beginning");
      return;
    }
    const size_t saved = reader.count(kSamplerStem, kSamplerExtension);
    reader.require_count("loaders", saved, loaders_.size());
    for (size_t i = 0; i < loaders_.size() && i < saved; ++i) {
      const std::string name = numbered_file(kSamplerStem, i, kSamplerExtension);
      const LoaderState state = to_state(reader.archive(name));
      try {
        loaders_[i]->check(state);
      } catch (const DataError& error) {
        throw CheckpointError(
            {.what = error.message(), .where = reader.where(name), .hint = error.hint()});
      }
      states_.push_back(state);
    }
  }

  void apply() override {
    for (size_t i = 0; i < states_.size(); ++i) loaders_[i]->load(states_[i]);
  }

 private:
  std::vector<std::shared_ptr<detail::FollowedLoader>> loaders_;
  std::vector<LoaderState> states_;
};

}  // namespace

std::unique_ptr<StatePart> loaders_part(
    std::vector<std::shared_ptr<detail::FollowedLoader>> loaders) {
  return std::make_unique<LoadersPart>(std::move(loaders));
}

}  // namespace accelerate::checkpoint
