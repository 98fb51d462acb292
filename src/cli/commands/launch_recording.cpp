#include "cli/commands/launch_recording.h"

#include <unistd.h>

#include <array>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/host_name.h"
#include "base/library_version.h"
#include "cli/reports/explain_table.h"
#include "config/value.h"
#include "launch/plan/shell_words.h"
#include "monitor/server/listening.h"
#include "monitor/view/run_folder.h"

namespace accelerate::cli {
namespace {

namespace fs = std::filesystem;
using config::Settings;

// "train-20261119-130512": of the program and the time.
std::string new_run_name(const LaunchArguments& arguments) {
  constexpr size_t kMostName = 40;
  std::string name;
  for (const char c : fs::path(arguments.program).stem().string().substr(0, kMostName)) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
    name += is_plain ? c : '_';
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "-%Y%m%d-%H%M%S", &local);
  return (name.empty() ? "run" : name) + time.data();
}

fs::path new_run_folder(const LaunchArguments& arguments) {
  const fs::path home = monitor::default_runs_folder();
  const std::string name = new_run_name(arguments);
  std::error_code error;
  fs::create_directories(home, error);
  fs::path folder = home / name;
  for (int number = 2; !fs::create_directory(folder, error) && !error && number < 1000; ++number) {
    folder = home / (name + "-" + std::to_string(number));
  }
  return folder;  // what could not be made is told by who writes there
}

bool wants_page(const Settings& settings) {
  const std::string value = settings.text("monitor");
  return !value.empty() && config::truth_of(value) != std::optional(false);
}

// "" where a word only says that there is to be one.
std::string address_text(const Settings& settings) {
  const std::string value = settings.text("monitor");
  return config::truth_of(value) ? "" : value;
}

std::string command_text(const LaunchArguments& arguments) {
  std::vector<std::string> words{arguments.program};
  words.insert(words.end(), arguments.program_arguments.begin(), arguments.program_arguments.end());
  return launch::shell_line(words);
}

}  // namespace

LaunchRecording::LaunchRecording(const Settings& settings, const LaunchArguments& arguments,
                                 launch::LaunchPlan& plan) {
  const bool has_page = wants_page(settings);
  const std::string named = settings.text("run_dir");
  if (!has_page && named.empty()) return;
  monitor::OpenPage page;
  if (has_page) {
    const std::string where = config::place_of(settings["monitor"].source);
    page = monitor::open_page(monitor::parse_page_address(address_text(settings), where), where);
  }
  const fs::path folder = named.empty() ? new_run_folder(arguments) : fs::absolute(named);
  writer_.emplace(folder, run_record::Begin{.writer = run_record::WriterKind::kCommand,
                                            .world_size = static_cast<uint64_t>(plan.num_processes),
                                            .pid = static_cast<uint64_t>(getpid()),
                                            .host = host_name(),
                                            .program = fs::path(arguments.program).filename(),
                                            .version = library_version()});
  std::error_code error;
  writer_->append(run_record::Setting{.name = "command",
                                      .value = command_text(arguments),
                                      .source = "the command line",
                                      .is_given = true});
  writer_->append(run_record::Setting{.name = "folder",
                                      .value = fs::current_path(error).string(),
                                      .source = "where the launcher was started",
                                      .is_given = true});
  for (const SettingRow& row : setting_rows(settings)) {
    writer_->append(run_record::Setting{
        .name = row.name, .value = row.value, .source = row.source, .is_given = row.is_given});
  }
  writer_->flush();
  plan.run_dir = folder;
  plan.page_token = page.token;
  plan.page_socket = page.socket.release();
  note_ = "the run is recorded in " + folder.string();
  if (has_page) note_ = "the page of this run is " + page.url + "\naccelerate launch: " + note_;
}

LaunchRecording::~LaunchRecording() {
  if (writer_) ended(1);
}

int LaunchRecording::ended(int exit_code) {
  if (!writer_) return exit_code;
  writer_->append(run_record::End{.time_us = writer_->now_us(), .exit_code = exit_code});
  writer_.reset();
  return exit_code;
}

}  // namespace accelerate::cli
