// The runs that a page can show.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "monitor/view/run_folder.h"

namespace accelerate::monitor {

// One run, or several that lie in one folder; those that anybody looks at are followed. Used by one
// thread.
class RunLibrary {
 public:
  static constexpr size_t kMostOpen = 24;

  // `path` is a run, whose neighbours can be compared with it, or a folder of runs.
  explicit RunLibrary(const std::filesystem::path& path);

  // Names of all runs, the newest first; looked up again when some time has passed.
  const std::vector<std::string>& names();
  // The run that is shown first: the one that was named, or the newest.
  std::string first();
  // The run `name`, opened if it is not yet; nullptr if there is none. Of names, not paths: nothing
  // outside of the folder can be reached.
  RunFolder* find(const std::string& name);
  // Reads what has been written to those that are open.
  void poll();

 private:
  struct Open {
    std::unique_ptr<RunFolder> run;
    uint64_t used = 0;
  };
  std::filesystem::path folder_;
  std::string named_;  // "": a folder of runs was
  std::vector<std::string> names_;
  std::chrono::steady_clock::time_point next_look_{};
  std::map<std::string, Open> open_;
  uint64_t uses_ = 0;
};

}  // namespace accelerate::monitor
