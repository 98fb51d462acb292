#include "core/tracking/run_tracking.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "tracking/tracker_factory.h"

namespace accelerate {
namespace {

using namespace std::chrono_literals;
using tracking::Record;
using tracking::RecordKind;

constexpr auto kPatienceAtEnd = 60'000ms;  // with values that a device still computes

void say(LogLevel level, std::string_view text) { accelerate::log(level, text); }

size_t bytes_of(const tracking::Attachment& attachment) {
  constexpr size_t kSmall = 4096;
  if (const auto* figure = std::get_if<TrackedFigure>(&attachment.content)) {
    return kSmall + figure->bytes.size();
  }
  const auto* table = std::get_if<TrackedTable>(&attachment.content);
  size_t bytes = kSmall;
  for (size_t row = 0; table != nullptr && row < table->rows.size(); ++row) {
    for (const TrackedValue& value : table->rows[row]) {
      bytes += sizeof(TrackedValue) + (value.text() != nullptr ? value.text()->size() : 0);
    }
  }
  return bytes;
}

}  // namespace

RunTracking::RunTracking(const ProcessState& state, std::vector<TrackerChoice> log_with,
                         const ProjectOptions& project, std::shared_ptr<GeneralTracker> record)
    : log_with_(std::move(log_with)),
      logging_dir_(project.logging_dir.empty() ? project.project_dir : project.logging_dir),
      is_main_process_(state.is_main_process()),
      record_(is_main_process_ ? std::move(record) : nullptr) {
  const auto known = tracking::tracker_names();
  for (const TrackerChoice& choice : log_with_) {
    if (choice.tracker() != nullptr) {
      names_.push_back(choice.tracker()->name());
    } else if (choice.name() == "all") {
      names_.insert(names_.end(), known.begin(), known.end());
    } else {
      (void)tracking::make_tracker(choice.name(), {});  // throws for one that is not known
      names_.push_back(choice.name());
    }
  }
  for (size_t i = 0; i < names_.size(); ++i) {
    if (std::find(names_.begin(), names_.begin() + static_cast<std::ptrdiff_t>(i), names_[i]) ==
        names_.begin() + static_cast<std::ptrdiff_t>(i)) {
      continue;
    }
    throw UsageError({.what = "there are two trackers \"" + names_[i] + "\"",
                      .where = "AcceleratorOptions::log_with",
                      .hint = "name each tracker once"});
  }
  // A program that names no tracker need not call init_trackers().
  if (record_ && log_with_.empty()) {
    writer_ = std::make_unique<tracking::TrackerWriter>(
        std::vector<std::shared_ptr<GeneralTracker>>{record_}, TrackerRun{}, TrackerInitOptions{},
        say);
  }
}

std::vector<std::shared_ptr<GeneralTracker>> RunTracking::make_trackers(
    const TrackerInitOptions& options) const {
  std::vector<std::shared_ptr<GeneralTracker>> made;
  for (const TrackerChoice& choice : log_with_) {
    if (choice.tracker() != nullptr) {
      made.push_back(choice.tracker());
    } else if (choice.name() == "all") {
      for (const std::string& name : tracking::tracker_names()) {
        made.push_back(tracking::make_tracker(name, options));
      }
    } else {
      made.push_back(tracking::make_tracker(choice.name(), options));
    }
  }
  for (const auto& tracker : made) {
    if (!tracker->requires_logging_directory() || !logging_dir_.empty()) continue;
    throw UsageError({.what = "tracker \"" + tracker->name() + "\" needs a folder to write to",
                      .where = "init_trackers",
                      .hint = "set ProjectOptions::logging_dir or project_dir"});
  }
  std::erase_if(
      made, [&](const auto& tracker) { return tracker->main_process_only() && !is_main_process_; });
  return made;
}

void RunTracking::init(const std::string& project, const TrackerConfig& config,
                       const TrackerInitOptions& options) {
  if (is_started_) {
    throw UsageError({.what = "the trackers have been started",
                      .where = "init_trackers",
                      .hint = "call it once for each Accelerator"});
  }
  auto trackers = make_trackers(options);
  if (record_) trackers.push_back(record_);  // behind those that have an index
  if (!trackers.empty() && !log_with_.empty()) {
    writer_ = std::make_unique<tracking::TrackerWriter>(
        std::move(trackers),
        TrackerRun{.project = project,
                   .logging_dir = logging_dir_,
                   .continues = options.resume.value_or(was_loaded_)},
        options, say);
    if (options.flush_on_signals) exit_flush_ = std::make_unique<tracking::ExitFlush>(*writer_);
    if (!config.empty()) {
      writer_->push([&](Record& record) {
        record.kind = RecordKind::kConfig;
        for (const NamedValue& entry : config) record.add(entry.name).value = entry.value;
      });
    }
  }
  is_started_ = true;
}

void RunTracking::continue_run() {
  was_loaded_ = true;
  if (!writer_ || is_ended_) return;
  writer_->push([](Record& record) { record.kind = RecordKind::kContinue; });
}

void RunTracking::end() {
  if ((!is_started_ && !writer_) || is_ended_.exchange(true) || !writer_) return;
  writer_->stop(kPatienceAtEnd);
  exit_flush_.reset();
}

void RunTracking::require_started(const char* where) const {
  if (is_ended_) {
    throw UsageError(
        {.what = "the trackers have ended", .where = where, .hint = "log before end_training()"});
  }
  if (is_started_ || log_with_.empty()) return;
  throw UsageError({.what = "the trackers have not been started",
                    .where = where,
                    .hint = "call init_trackers() first"});
}

void RunTracking::log(int tracker, std::span<const Logged> values, std::optional<int64_t> step) {
  require_started("log");
  if (!writer_) return;
  // Tensors are looked at first: a bad one is the caller's error, and takes no place in the queue.
  std::vector<at::Tensor> on_device;
  std::vector<double> numbers;
  for (const Logged& logged : values) {
    const at::Tensor* tensor = logged.value.tensor();
    if (tensor == nullptr) continue;
    const auto number = number_on_host(*tensor, logged.name);
    if (number) numbers.push_back(*number);
    if (!number) on_device.push_back(*tensor);
  }
  const auto pending = on_device.empty() ? nullptr : numbers_of(on_device);
  writer_->push([&](Record& record) {
    record.kind = RecordKind::kValues;
    record.tracker = tracker;
    record.at.step = step;
    size_t next = 0;
    for (const Logged& logged : values) {
      NamedValue& value = record.add(logged.name);
      const at::Tensor* tensor = logged.value.tensor();
      if (tensor == nullptr) {
        value.value = logged.value.value();
      } else if (tensor->is_cpu()) {
        value.value = numbers[next++];
      } else {
        record.waiting.push_back(record.value_count - 1);
      }
    }
    record.pending = pending;
  });
}

void RunTracking::log_images(int tracker, std::initializer_list<LoggedImages> images,
                             std::optional<int64_t> step, ImageLayout layout) {
  require_started("log_images");
  if (writer_) attach_tensors(tracker, images_of(images, layout), step);
}

void RunTracking::log_histogram(int tracker, std::string_view name, const at::Tensor& values,
                                std::optional<int64_t> step) {
  require_started("log_histogram");
  if (writer_) attach_tensors(tracker, histogram_of_tensor(name, values), step);
}

void RunTracking::attach_tensors(int tracker, const TrackedTensors& tensors,
                                 std::optional<int64_t> step) {
  writer_->push_attachment(tensors.bytes, [&](Record& record) {
    record.kind = RecordKind::kAttachment;
    record.tracker = tracker;
    record.at.step = step;
    record.pending_attachment = tensors.attachment;
  });
}

void RunTracking::attach(int tracker, tracking::Attachment attachment,
                         std::optional<int64_t> step) {
  require_started("log");
  if (!writer_) return;
  const size_t bytes = bytes_of(attachment);
  auto shared = std::make_shared<const tracking::Attachment>(std::move(attachment));
  writer_->push_attachment(bytes, [&](Record& record) {
    record.kind = RecordKind::kAttachment;
    record.tracker = tracker;
    record.at.step = step;
    record.attachment = std::move(shared);
  });
}

std::optional<int> RunTracking::find(const std::string& name) const {
  if (std::ranges::find(names_, name) == names_.end()) {
    std::string known;
    for (const std::string& other : names_) known += (known.empty() ? "" : ", ") + other;
    throw UsageError(
        {.what = "there is no tracker \"" + name + "\" in this run",
         .where = "get_tracker",
         .hint = known.empty() ? "set AcceleratorOptions::log_with" : "it has " + known});
  }
  if (!is_started_) require_started("get_tracker");
  if (!writer_) return std::nullopt;
  const auto& trackers = writer_->trackers();
  for (size_t i = 0; i < trackers.size(); ++i) {
    if (trackers[i]->name() == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

// --- What users hold ---

std::string Tracker::name() const {
  const GeneralTracker* own = tracker();
  return own != nullptr ? own->name() : "";
}

GeneralTracker* Tracker::tracker() const { return run_ ? &run_->tracker(index_) : nullptr; }

void Tracker::log(std::span<const Logged> values, std::optional<int64_t> step) const {
  if (run_) run_->log(index_, values, step);
}

void Tracker::log_images(std::initializer_list<LoggedImages> images, std::optional<int64_t> step,
                         ImageLayout layout) const {
  if (run_) run_->log_images(index_, images, step, layout);
}

void Tracker::log_table(TrackedTable table, std::optional<int64_t> step) const {
  if (run_) run_->attach(index_, {.content = std::move(table)}, step);
}

void Tracker::log_histogram(std::string_view name, const at::Tensor& values,
                            std::optional<int64_t> step) const {
  if (run_) run_->log_histogram(index_, name, values, step);
}

void Tracker::log_figure(TrackedFigure figure, std::optional<int64_t> step) const {
  if (run_) run_->attach(index_, {.content = std::move(figure)}, step);
}

void Tracker::log_artifact(const std::filesystem::path& path, std::string artifact_path) const {
  if (!run_) return;
  run_->attach(
      index_, {.content = TrackedArtifact{.path = path, .artifact_path = std::move(artifact_path)}},
      {});
}

}  // namespace accelerate
