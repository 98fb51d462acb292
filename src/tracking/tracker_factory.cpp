#include "tracking/tracker_factory.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/nearest_name.h"
#include "tracking/csv_tracker.h"
#include "tracking/json_lines_tracker.h"
#include "tracking/mlflow_tracker.h"
#include "tracking/tensorboard_tracker.h"
#include "tracking/wandb_tracker.h"

namespace accelerate::tracking {
namespace {

struct OwnTracker {
  std::string_view name;
  std::shared_ptr<GeneralTracker> (*make)(const TrackerInitOptions& options);
};

constexpr std::array kOwnTrackers = {
    OwnTracker{"tensorboard",
               [](const TrackerInitOptions& options) -> std::shared_ptr<GeneralTracker> {
                 return std::make_shared<TensorBoardTracker>(options.tensorboard);
               }},
    OwnTracker{"csv",
               [](const TrackerInitOptions& options) -> std::shared_ptr<GeneralTracker> {
                 return std::make_shared<CsvTracker>(options.csv);
               }},
    OwnTracker{"jsonl",
               [](const TrackerInitOptions& options) -> std::shared_ptr<GeneralTracker> {
                 return std::make_shared<JsonLinesTracker>(options.jsonl);
               }},
    OwnTracker{"mlflow",
               [](const TrackerInitOptions& options) -> std::shared_ptr<GeneralTracker> {
                 return std::make_shared<MlflowTracker>(options.mlflow);
               }},
    OwnTracker{"wandb", [](const TrackerInitOptions& options) -> std::shared_ptr<GeneralTracker> {
                 return std::make_shared<WandbTracker>(options.wandb);
               }}};

// Trackers of the Python library that write through a package of their service alone.
constexpr std::array<std::string_view, 7> kElsewhere = {"aim",     "clearml", "comet_ml", "dvclive",
                                                        "trackio", "swanlab", "comet"};

}  // namespace

std::vector<std::string> tracker_names() {
  std::vector<std::string> names;
  for (const OwnTracker& tracker : kOwnTrackers) names.emplace_back(tracker.name);
  return names;
}

std::shared_ptr<GeneralTracker> make_tracker(const std::string& name,
                                             const TrackerInitOptions& options) {
  const auto found = std::ranges::find(kOwnTrackers, name, &OwnTracker::name);
  if (found != kOwnTrackers.end()) return found->make(options);
  std::string known;
  for (const std::string& other : tracker_names()) known += (known.empty() ? "" : ", ") + other;
  if (std::ranges::find(kElsewhere, name) != kElsewhere.end()) {
    throw UsageError({.what = "there is no tracker \"" + name +
                              "\": it is written through a Python package of its own",
                      .where = "AcceleratorOptions::log_with",
                      .hint = "use one of " + known + ", or derive one from GeneralTracker"});
  }
  const std::string nearest = nearest_name(name, tracker_names());
  throw UsageError({.what = "there is no tracker \"" + name + "\"" +
                            (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"),
                    .where = "AcceleratorOptions::log_with",
                    .hint = "use all or any of " + known + ", or a GeneralTracker of your own"});
}

}  // namespace accelerate::tracking
