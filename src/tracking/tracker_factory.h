// The trackers that the library has, by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "accelerate/tracker.h"

namespace accelerate::tracking {

// "tensorboard", "csv", "jsonl", "mlflow", "wandb".
std::vector<std::string> tracker_names();

// Throws UsageError for a name that is not one of them; says why for one of the Python library.
std::shared_ptr<GeneralTracker> make_tracker(const std::string& name,
                                             const TrackerInitOptions& options);

}  // namespace accelerate::tracking
