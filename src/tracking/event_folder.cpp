#include "tracking/event_folder.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/host_name.h"

namespace accelerate::tracking {

EventFileNames EventFileNames::of_this_process() {
  return {.now =
              [] {
                const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
                return std::chrono::duration<double>(since_epoch).count();
              },
          .host = host_name(),
          .process = ::getpid()};
}

std::string EventFileNames::next() {
  std::array<char, 32> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%010lld", static_cast<long long>(now()));
  return std::string("events.out.tfevents.") + seconds.data() + '.' + host + '.' +
         std::to_string(process) + '.' + std::to_string(next_number++) + suffix;
}

void EventFolder::open() {
  if (file_.is_open()) return;
  // Another tracker of this process may have begun one in this second.
  std::filesystem::path path = path_ / names_->next();
  while (std::filesystem::exists(path)) path = path_ / names_->next();
  file_ = OutputFile(std::move(path), OutputFile::At::kEnd);
  std::string first;
  append_record(first, version_event(names_->now()));
  file_.append(first);
}

void EventFolder::add(std::string_view event) {
  open();
  std::string record;
  append_record(record, event);
  file_.append(record);
}

void EventFolder::add_value(std::string_view tag, const TrackedStep& at, std::string_view event) {
  cutter_.note(tag, at.step);
  has_values_ = true;
  add(event);
}

void EventFolder::continue_run() {
  flush();
  if (has_values_) file_.close();
  has_values_ = false;
  cutter_.begin();
}

void EventFolder::flush() {
  if (const StepCuts& cuts = cutter_.pending(); !cuts.empty()) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
      const std::string name = entry.path().filename().string();
      if (name.find(".tfevents.") == std::string::npos || entry.path() == file_.path()) continue;
      const std::string bytes = read_file(entry.path());
      if (const auto kept = without_steps(bytes, cuts)) write_file(entry.path(), *kept);
    }
    cutter_.set_done();
  }
  if (file_.is_open()) file_.flush();
}

EventStamp stamp_of(const TrackedStep& at) {
  const auto since_epoch = std::chrono::duration<double>(at.time.time_since_epoch());
  return {.wall_time = since_epoch.count(), .step = at.step.value_or(0)};
}

}  // namespace accelerate::tracking
