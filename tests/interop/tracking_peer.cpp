// Writes a run with one of the library's trackers, for tests that read it with the real packages.
//
//   tracking_peer TRACKER FOLDER FIRST_STEP LAST_STEP new|continue [MLFLOW_URI]
#include <accelerate/tracker.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tracking/histogram.h"
#include "tracking/tracker_factory.h"

namespace {

using namespace accelerate;

TrackedStep step_at(int64_t step) {
  return {.step = step, .time = std::chrono::system_clock::now()};
}

TrackedImage picture() {
  TrackedImage image{.name = "picture", .height = 4, .width = 6, .channels = 3};
  for (int i = 0; i < 4 * 6 * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 3));
  return image;
}

void log_step(GeneralTracker& tracker, int64_t step, bool continues) {
  const double loss = 1.0 / static_cast<double>(step) + (continues ? 100 : 0);
  const std::vector<NamedValue> values = {{"train/loss", loss},
                                          {"epoch", step / 2},
                                          {"losses", TrackedGroup{{"a", loss}, {"b", -loss}}},
                                          {"odd é", std::nan("")},
                                          {"note", "step " + std::to_string(step)}};
  tracker.log(values, step_at(step));
}

void log_media(GeneralTracker& tracker, int64_t step, const std::filesystem::path& folder) {
  const TrackedImage image = picture();
  tracker.log_images(std::span(&image, 1), step_at(step));
  tracker.log_table({.name = "table",
                     .columns = {"text", "score"},
                     .rows = {{"first", 0.5}, {"second", int64_t{2}}}},
                    step_at(step));
  std::vector<double> weights(1000);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<double>(i) / 1000;
  tracker.log_histogram(tracking::histogram_of("weights", weights), step_at(step));
  tracker.log_figure({.name = "figure", .extension = "html", .bytes = "<p>figure</p>"},
                     step_at(step));
  const auto file = folder / "artifact.txt";
  std::ofstream(file) << "an artifact";
  tracker.log_artifact({.path = file, .artifact_path = "files"});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  try {
    const std::filesystem::path folder = argv[2];
    const bool continues = std::string(argv[5]) == "continue";
    TrackerInitOptions options;
    options.wandb = {.id = "abc123", .name = "peer", .entity = "team", .tags = {"x"}};
    options.mlflow.run_name = "peer";
    options.mlflow.tags = {{"kind", "interop"}};
    options.mlflow.description = "of a test";
    if (argc > 6) options.mlflow.tracking_uri = argv[6];
    const auto tracker = tracking::make_tracker(argv[1], options);
    tracker->start({.project = "demo", .logging_dir = folder, .continues = continues});
    if (!continues) {
      tracker->store_init_configuration(
          {{"lr", 2e-5}, {"model", "bert"}, {"epochs", 3}, {"fp16", true}});
    }
    const int64_t last = std::stoll(argv[4]);
    for (int64_t step = std::stoll(argv[3]); step <= last; ++step) {
      log_step(*tracker, step, continues);
    }
    if (!continues) log_media(*tracker, last + 1, folder);
    tracker->finish();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
