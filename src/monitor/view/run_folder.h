// Runs on disk: one that is followed, and those that lie beside each other.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "monitor/view/run_view.h"
#include "run_record/record_reader.h"

namespace accelerate::monitor {

// One run, read as far as it has been written. Used by one thread.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path);

  // Takes what was written since the call before, at most for about `budget`. True if there was
  // anything.
  bool poll(std::chrono::milliseconds budget = std::chrono::milliseconds(200));
  // Nobody has written anything for so long that nobody seems to be there any more, although
  // nothing says that the run has ended.
  bool is_silent() const;

  const RunView& view() const { return view_; }
  const std::filesystem::path& path() const { return path_; }
  std::string name() const;

 private:
  void look_for_files();

  std::filesystem::path path_;
  struct File {
    run_record::RecordReader reader;
    int id = 0;
    bool is_told_damaged = false;
  };
  std::map<std::string, File> files_;  // by name: those of one writer in the order of their numbers
  RunView view_;
  std::chrono::steady_clock::time_point next_look_{};
};

// Seconds since 1970, by the clock of this machine.
double unix_now();

// Whether `path` holds records.
bool is_run_folder(const std::filesystem::path& path);

// The runs in `path`: itself if it is one, else those in it, the newest first.
std::vector<std::filesystem::path> runs_in(const std::filesystem::path& path);

// Where runs are kept of which nobody says where: accelerate/runs in XDG_STATE_HOME or
// ~/.local/state.
std::filesystem::path default_runs_folder();

// The run that `name` means: a folder, or the name of one in default_runs_folder(), or for "" the
// newest there. Throws UsageError that says where it looked.
std::filesystem::path find_run(const std::string& name);

}  // namespace accelerate::monitor
