#include "tracking/tensorboard_tracker.h"

#include <algorithm>
#include <utility>

#include "tracking/json_text.h"
#include "tracking/png.h"

namespace accelerate::tracking {
namespace {

std::string markdown_table(const TrackedTable& table) {
  std::string text = "|";
  const auto add_cell = [&](const std::string& cell) {
    text += ' ';
    for (const char c : cell) {
      if (c == '|') text += '\\';
      text += c == '\n' ? ' ' : c;
    }
    text += " |";
  };
  for (const std::string& column : table.columns) add_cell(column);
  text += "\n|";
  for (size_t i = 0; i < table.columns.size(); ++i) text += " --- |";
  for (const auto& row : table.rows) {
    text += "\n|";
    for (const TrackedValue& value : row) add_cell(plain_text(value));
  }
  return text;
}

// The size that stands in the head of a PNG file; nothing for other bytes.
std::optional<TrackedImage> size_of_png(std::string_view png) {
  constexpr std::string_view kBegin = "\x89PNG\r\n\x1a\n";
  if (png.size() < 26 || !png.starts_with(kBegin)) return std::nullopt;
  const auto number = [&](size_t at) {
    int64_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(png[at + i]);
    return value;
  };
  constexpr int kPalette = 3;
  const int colour_type = png[25];
  const int channels = colour_type == 0 ? 1 : colour_type == 4 ? 2 : colour_type == 2 ? 3 : 4;
  return TrackedImage{.height = number(20),
                      .width = number(16),
                      .channels = colour_type == kPalette ? 3 : channels};
}

}  // namespace

TensorBoardTracker::TensorBoardTracker(TensorBoardOptions options, EventFileNames names)
    : options_(std::move(options)), names_(std::move(names)) {
  names_.suffix = options_.filename_suffix;
}

void TensorBoardTracker::start(const TrackerRun& run) {
  main_.emplace(run.logging_dir / run.project, names_);
  if (run.continues) continue_run();
  main_->open();
  if (options_.purge_step) {
    main_->add(session_start_event({.wall_time = names_.now(), .step = *options_.purge_step}));
  }
  main_->flush();
}

void TensorBoardTracker::store_init_configuration(const TrackerConfig& config) {
  const double now = names_.now();
  EventFolder session(main_->path() / python_number(now), names_);
  const EventStamp stamp{.wall_time = now};
  session.add(hparams_experiment_event(stamp, config, {}));
  session.add(hparams_start_event(stamp, config));
  session.add(hparams_end_event(stamp));
  session.flush();
  OutputFile file(session.path() / "hparams.yml", OutputFile::At::kStart);
  file.append(yaml_document(config));
  file.close();
}

EventFolder& TensorBoardTracker::group_folder(std::string name) {
  std::ranges::replace(name, '/', '_');
  const auto found = groups_.find(name);
  if (found != groups_.end()) return found->second;
  EventFolder& folder = groups_.try_emplace(name, main_->path() / name, names_).first->second;
  if (continues_) folder.continue_run();
  return folder;
}

void TensorBoardTracker::log_text(std::string_view tag, std::string_view text,
                                  const TrackedStep& at) {
  main_->add_value(std::string(tag) + "/text_summary", at, text_event(stamp_of(at), tag, text));
}

void TensorBoardTracker::log(std::span<const NamedValue> values, const TrackedStep& at) {
  const EventStamp stamp = stamp_of(at);
  const ScalarKind kind =
      options_.double_precision ? ScalarKind::kDoubleTensor : ScalarKind::kSimple;
  for (const NamedValue& value : values) {
    if (const std::string* text = value.value.text()) {
      log_text(value.name, *text, at);
    } else if (const TrackedGroup* group = value.value.group()) {
      for (const auto& [member, number] : *group) {
        group_folder(value.name + '_' + member)
            .add_value(value.name, at, scalar_event(stamp, value.name, number, kind));
      }
    } else {
      main_->add_value(value.name, at,
                       scalar_event(stamp, value.name, *value.value.number(), kind));
    }
  }
}

bool TensorBoardTracker::log_images(std::span<const TrackedImage> images, const TrackedStep& at) {
  for (const TrackedImage& image : images) {
    main_->add_value(image.name, at, image_event(stamp_of(at), image.name, image, png_of(image)));
  }
  return true;
}

bool TensorBoardTracker::log_table(const TrackedTable& table, const TrackedStep& at) {
  log_text(table.name, markdown_table(table), at);
  return true;
}

bool TensorBoardTracker::log_histogram(const TrackedHistogram& histogram, const TrackedStep& at) {
  main_->add_value(histogram.name, at, histogram_event(stamp_of(at), histogram));
  return true;
}

bool TensorBoardTracker::log_figure(const TrackedFigure& figure, const TrackedStep& at) {
  const auto size = size_of_png(figure.bytes);
  if (!size) return false;
  main_->add_value(figure.name, at, image_event(stamp_of(at), figure.name, *size, figure.bytes));
  return true;
}

void TensorBoardTracker::continue_run() {
  continues_ = true;
  main_->continue_run();
  for (auto& [name, folder] : groups_) folder.continue_run();
}

void TensorBoardTracker::flush() {
  if (!main_) return;
  main_->flush();
  for (auto& [name, folder] : groups_) folder.flush();
}

}  // namespace accelerate::tracking
