// Trackers by name.
#include "tracking/tracker_factory.h"

#include <gmock/gmock.h>

#include "support/error_of.h"

namespace accelerate::tracking {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TrackerFactory, MakesEveryTrackerByItsName) {
  EXPECT_THAT(tracker_names(), ElementsAre("tensorboard", "csv", "jsonl", "mlflow", "wandb"));
  for (const std::string& name : tracker_names()) {
    const auto tracker = make_tracker(name, {});
    EXPECT_EQ(tracker->name(), name);
    EXPECT_TRUE(tracker->main_process_only());
    EXPECT_EQ(tracker->requires_logging_directory(), name != "mlflow" && name != "wandb");
  }
}

TEST(TrackerFactory, NamesWhatIsMeantByAMistypedName) {
  EXPECT_THAT(test::error_text<UsageError>([] { make_tracker("tensorbord", {}); }),
              HasSubstr("there is no tracker \"tensorbord\"; did you mean \"tensorboard\"?"));
}

TEST(TrackerFactory, SaysWhyATrackerOfThePythonLibraryIsMissing) {
  for (const char* name : {"aim", "clearml", "comet_ml", "dvclive", "swanlab", "trackio"}) {
    const std::string text = test::error_text<UsageError>([&] { make_tracker(name, {}); });
    EXPECT_THAT(text, HasSubstr("is written through a Python package of its own"));
    EXPECT_THAT(text, HasSubstr("GeneralTracker"));
  }
}

TEST(GeneralTrackers, DoNothingWithWhatTheyDoNotKnow) {
  class Least : public GeneralTracker {
    std::string name() const override { return "least"; }
    void store_init_configuration(const TrackerConfig&) override {}
    void log(std::span<const NamedValue>, const TrackedStep&) override {}
  };
  Least least;
  GeneralTracker& tracker = least;
  tracker.start({});
  EXPECT_FALSE(tracker.log_images({}, {}));
  EXPECT_FALSE(tracker.log_table({}, {}));
  EXPECT_FALSE(tracker.log_histogram({}, {}));
  EXPECT_FALSE(tracker.log_figure({}, {}));
  EXPECT_FALSE(tracker.log_artifact({}));
  tracker.continue_run();
  tracker.flush_before_end();
  tracker.finish();
}

TEST(TrackedValues, KeepTheirKind) {
  EXPECT_EQ(TrackedValue(true).number(), 1.0);
  EXPECT_EQ(TrackedValue(3).get().index(), 1U);
  EXPECT_EQ(TrackedValue(2.5F).number(), 2.5);
  EXPECT_EQ(TrackedValue(~uint64_t{0}).number(), 18446744073709551615.0);
  EXPECT_EQ(*TrackedValue("text").text(), "text");
  EXPECT_EQ(TrackedValue("text").number(), std::nullopt);
  EXPECT_EQ(TrackedValue(TrackedGroup{{"a", 1.0}}).group()->size(), 1U);
}

}  // namespace
}  // namespace accelerate::tracking
