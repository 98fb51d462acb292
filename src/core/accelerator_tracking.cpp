// The members of Accelerator that are about trackers.
#include <utility>

#include "accelerate/accelerator.h"
#include "core/accelerator_impl.h"
#include "tracking/record_queue.h"

namespace accelerate {
namespace {

constexpr int kAll = tracking::Record::kAllTrackers;

}  // namespace

void Accelerator::init_trackers(const std::string& project_name, const TrackerConfig& config,
                                const TrackerInitOptions& options) {
  impl_->stamped([&] { impl_->tracking->init(project_name, config, options); });
}

void Accelerator::log(std::span<const Logged> values, std::optional<int64_t> step) {
  impl_->stamped([&] { impl_->tracking->log(kAll, values, step); });
}

void Accelerator::log_images(std::initializer_list<LoggedImages> images,
                             std::optional<int64_t> step, ImageLayout layout) {
  impl_->stamped([&] { impl_->tracking->log_images(kAll, images, step, layout); });
}

void Accelerator::log_table(TrackedTable table, std::optional<int64_t> step) {
  impl_->stamped([&] { impl_->tracking->attach(kAll, {.content = std::move(table)}, step); });
}

void Accelerator::log_histogram(std::string_view name, const at::Tensor& values,
                                std::optional<int64_t> step) {
  impl_->stamped([&] { impl_->tracking->log_histogram(kAll, name, values, step); });
}

void Accelerator::log_figure(TrackedFigure figure, std::optional<int64_t> step) {
  impl_->stamped([&] { impl_->tracking->attach(kAll, {.content = std::move(figure)}, step); });
}

void Accelerator::log_artifact(const std::filesystem::path& path, std::string artifact_path) {
  impl_->stamped([&] {
    impl_->tracking->attach(
        kAll, {.content = TrackedArtifact{.path = path, .artifact_path = std::move(artifact_path)}},
        {});
  });
}

Tracker Accelerator::get_tracker(const std::string& name) const {
  return impl_->stamped([&]() -> Tracker {
    const auto index = impl_->tracking->find(name);
    if (!index) return {};
    return {impl_->tracking, *index};
  });
}

void Accelerator::end_training() { impl_->tracking->end(); }

}  // namespace accelerate
