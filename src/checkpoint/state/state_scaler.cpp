#include <optional>

#include "accelerate/errors.h"
#include "checkpoint/state/state_parts.h"

namespace accelerate::checkpoint {
namespace {

class ScalerPart final : public StatePart {
 public:
  explicit ScalerPart(GradScaler* scaler) : scaler_(scaler) {}

  void save(Snapshot& snapshot) const override {
    if (scaler_ == nullptr || !snapshot.writes_shared_files()) return;
    snapshot.add(kFile, to_torch_value(scaler_->state_dict()));
  }

  void check(StateReader& reader) override {
    reader.require_count("gradient scalers", reader.has(kFile) ? 1 : 0, scaler_ ? 1 : 0);
    if (scaler_ == nullptr || !reader.has(kFile)) return;
    state_ = to_state_dict(reader.archive(kFile));
    try {
      GradScaler(scaler_->options()).load_state_dict(*state_);
    } catch (const CheckpointError& error) {
      throw CheckpointError(
          {.what = error.message(), .where = reader.where(kFile), .hint = error.hint()});
    }
  }

  void apply() override {
    if (state_) scaler_->load_state_dict(*state_);
  }

 private:
  static constexpr const char* kFile = "scaler.pt";

  GradScaler* scaler_;
  std::optional<StateDict> state_;
};

}  // namespace

std::unique_ptr<StatePart> scaler_part(GradScaler* scaler) {
  return std::make_unique<ScalerPart>(scaler);
}

}  // namespace accelerate::checkpoint
