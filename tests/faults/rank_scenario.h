// What ranks do under faults, and what must hold after it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "rank_processes.h"

namespace faults {

// How a run under a fault ended, all ranks together.
struct Outcome {
  enum class Kind { kSaved, kFailed, kKilled };
  Kind kind = Kind::kSaved;
  bool saved = false;   // rank 0 came behind the save: it is done, whatever happened after it
  bool untidy = false;  // it said that something could not be removed, or had no means to remove it
  std::string hit{};    // the call that went wrong: "rename /path/of/the/file"
};

class Scenario {
 public:
  virtual ~Scenario() = default;
  virtual Nodes nodes() const { return Nodes::kOne; }
  // What is there before. On each rank, without faults.
  virtual void prepare(const std::filesystem::path& folder) const = 0;
  // Saves, on each rank; calls `arm` when nothing but that is left to be done: faults count from
  // there on.
  virtual void save(const std::filesystem::path& folder,
                    const std::function<void()>& arm) const = 0;
  // In one process, which may start ranks, after all of the ranks have ended. Throws
  // std::runtime_error that names the promise that was broken.
  virtual void check(const std::filesystem::path& folder, const Outcome& outcome) const = 0;
};

// numbered, latest, async, each_node, model; throws std::invalid_argument for another name.
std::unique_ptr<Scenario> make_scenario(const std::string& name);
std::unique_ptr<Scenario> model_scenario();

// Throws std::runtime_error unless it holds.
void require(bool holds, const std::string& promise);

// Throws if a hidden name or a partial file is left that `outcome` does not explain. `leftover` is
// one that was there before, which a save that failed may not have got to.
void require_tidy(const std::filesystem::path& folder, const Outcome& outcome,
                  const std::string& leftover = "");

}  // namespace faults
