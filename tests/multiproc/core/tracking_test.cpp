// Trackers of an accelerator: who writes, what tensors become, how a run goes on.
#include <accelerate/accelerate.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <csignal>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "multiproc/prepared_mlp.h"
#include "multiproc/state_folder.h"
#include "support/error_of.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// A tracker of a program's own, which notes what it is told.
class NotesOfAll : public GeneralTracker {
 public:
  explicit NotesOfAll(bool main_only = true) : main_only_(main_only) {}
  std::string name() const override { return "notes"; }
  bool main_process_only() const override { return main_only_; }
  void start(const TrackerRun& run) override { note("start " + run.project); }
  void store_init_configuration(const TrackerConfig& config) override {
    note("config " + config.at(0).name);
  }
  void log(std::span<const NamedValue> values, const TrackedStep& at) override {
    for (const NamedValue& value : values) {
      note(std::to_string(at.step.value_or(-1)) + " " + value.name + " " +
           (value.value.text() ? *value.value.text() : std::to_string(*value.value.number())));
    }
  }
  bool log_images(std::span<const TrackedImage> images, const TrackedStep&) override {
    for (const TrackedImage& image : images) {
      std::string text = image.name + " " + std::to_string(image.height) + "x" +
                         std::to_string(image.width) + "x" + std::to_string(image.channels);
      for (size_t i = 0; i < std::min<size_t>(6, image.pixels.size()); ++i) {
        text += " " + std::to_string(image.pixels[i]);
      }
      note(text);
    }
    return true;
  }
  bool log_histogram(const TrackedHistogram& histogram, const TrackedStep&) override {
    note(histogram.name + " of " + std::to_string(static_cast<int>(histogram.count)));
    return true;
  }
  void continue_run() override { note("continue"); }
  void finish() override { note("finish"); }

  std::vector<std::string> notes() {
    const std::lock_guard lock(mutex_);
    return notes_;
  }

 private:
  void note(std::string text) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(std::move(text));
  }
  const bool main_only_;
  std::mutex mutex_;
  std::vector<std::string> notes_;
};

struct TrackingTest : Ranks {
  StateFolder folder;

  AcceleratorOptions with(std::vector<TrackerChoice> log_with) const {
    AcceleratorOptions options = on_cpu();
    options.log_with = std::move(log_with);
    options.project.project_dir = folder.path();
    options.project.logging_dir = folder.path() / "logs";
    return options;
  }
  std::vector<json> lines() const {
    std::vector<json> found;
    std::ifstream file(folder / "logs/demo/metrics.jsonl");
    for (std::string line; std::getline(file, line);) found.push_back(json::parse(line));
    return found;
  }
};

TEST_F(TrackingTest, MainProcessWritesAndOthersDoNothing) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(with({"jsonl", "csv", "tensorboard"}));
    accelerator.init_trackers("demo", {{"lr", 0.5}, {"rank", rank.rank}});
    accelerator.log({{"loss", 1.5 + rank.rank}, {"note", "x"}}, 3);
    EXPECT_EQ(accelerator.get_tracker("jsonl").name(), rank.rank == 0 ? "jsonl" : "");
    accelerator.get_tracker("csv").log({{"only_csv", rank.rank}}, 3);
    accelerator.end_training();
    accelerator.end_training();
  });
  const auto found = lines();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]["config"], json({{"lr", 0.5}, {"rank", 0}}));
  EXPECT_EQ(found[1]["loss"], 1.5);
  EXPECT_EQ(found[1]["step"], 3);
  std::ifstream csv(folder / "logs/demo/metrics.csv");
  std::string header;
  std::getline(csv, header);
  EXPECT_EQ(header, "step,time,loss,note,only_csv");
}

TEST_F(TrackingTest, TensorsAreLoggedAsTheyWereAtTheCall) {
  run(1, [&](const Rank&) {
    const auto notes = std::make_shared<NotesOfAll>();
    Accelerator accelerator(with({notes}));
    accelerator.init_trackers("demo");
    auto loss = torch::full({1, 1}, 2.5, torch::requires_grad());
    accelerator.log({{"loss", loss},
                     {"half", torch::tensor(0.5, torch::kBFloat16)},
                     {"count", torch::tensor(7)},
                     {"flag", torch::tensor(true)}},
                    1);
    {
      const torch::NoGradGuard no_grad;
      loss.fill_(9);
    }
    accelerator.end_training();
    EXPECT_THAT(notes->notes(), ElementsAre("start demo", "1 loss 2.500000", "1 half 0.500000",
                                            "1 count 7.000000", "1 flag 1.000000", "finish"));
  });
}

TEST_F(TrackingTest, TensorWithSeveralElementsIsRefused) {
  run(1, [&](const Rank&) {
    Accelerator accelerator(with({"jsonl"}));
    accelerator.init_trackers("demo");
    EXPECT_THAT(error_text<UsageError>([&] {
                  accelerator.log({{"loss", torch::ones({2, 3})}});
                }),
                HasSubstr("\"loss\" is a tensor of Float [2, 3]"));
    EXPECT_THAT(error_text<UsageError>([&] {
                  accelerator.log({{"loss", at::Tensor()}});
                }),
                HasSubstr("\"loss\" is an undefined tensor"));
  });
}

TEST_F(TrackingTest, ImagesOfEveryLayoutBecomeOnePicture) {
  run(1, [&](const Rank&) {
    const auto notes = std::make_shared<NotesOfAll>();
    Accelerator accelerator(with({notes}));
    accelerator.init_trackers("demo");
    const auto row = torch::arange(6, torch::kByte).reshape({1, 3, 1, 2});  // one pixel row, RGB
    accelerator.log_images({{"nchw", row}, {"chw", row[0]}}, 1, ImageLayout::kChannelsFirst);
    accelerator.log_images({{"nhwc", row.permute({0, 2, 3, 1})}}, 1, ImageLayout::kChannelsLast);
    accelerator.log_images({{"grey", torch::tensor({{0.0, 0.5}, {1.0, 2.0}})}}, 1);
    accelerator.log_images({{"nine", torch::zeros({9, 1, 2, 3})}}, 1);
    accelerator.log_histogram("weights", torch::randn({10, 10}), 1);
    accelerator.end_training();
    EXPECT_THAT(notes->notes(),
                ElementsAre("start demo", "nchw 1x2x3 0 2 4 1 3 5", "chw 1x2x3 0 2 4 1 3 5",
                            "nhwc 1x2x3 0 2 4 1 3 5", "grey 2x2x1 0 127 255 255",
                            "nine 4x24x1 0 0 0 0 0 0", "weights of 100", "finish"));
    Accelerator other(with({"jsonl"}));
    other.init_trackers("other");
    EXPECT_THAT(error_text<UsageError>([&] {
                  other.log_images({{"x", torch::zeros({1, 5, 2, 2})}});
                }),
                HasSubstr("\"x\" is a tensor of Float [1, 5, 2, 2]"));
  });
}

TEST_F(TrackingTest, TablesFiguresAndFilesAreKept) {
  run(1, [&](const Rank&) {
    Accelerator accelerator(with({"jsonl"}));
    accelerator.init_trackers("demo");
    accelerator.log_table({.name = "t", .columns = {"a"}, .rows = {{1}}}, 2);
    accelerator.log_figure({.name = "f", .extension = "svg", .bytes = "<svg/>"}, 2);
    std::ofstream(folder / "model.txt") << "weights";
    accelerator.log_artifact(folder / "model.txt", "final");
    const Tracker tracker = accelerator.get_tracker("jsonl");
    tracker.log_table({.name = "t2", .columns = {"a"}});
    tracker.log_figure({.name = "f2", .extension = "svg"});
    tracker.log_images({{"i2", torch::zeros({2, 2})}}, 2);
    tracker.log_histogram("h2", torch::zeros({2}), 2);
    tracker.log_artifact(folder / "model.txt");
    EXPECT_EQ(tracker.unwrap()->name(), "jsonl");
    EXPECT_EQ(tracker.unwrap<NotesOfAll>(), nullptr);
  });
  EXPECT_EQ(lines().size(), 8U);
  EXPECT_EQ(lines()[0]["tables"]["t"]["columns"], json({"a"}));
  EXPECT_TRUE(std::filesystem::exists(folder / "logs/demo/artifacts/final/model.txt"));
}

TEST_F(TrackingTest, RunThatIsResumedHasEachStepOnce) {
  run(2, [&](const Rank&) {
    {
      PreparedMlp training(with({"jsonl"}));
      training.accelerator.init_trackers("demo");
      for (int64_t step = 1; step <= 5; ++step) {
        training.accelerator.log({{"loss", static_cast<double>(step)}}, step);
        if (step == 3) training.accelerator.save_state(folder / "checkpoint");
      }
    }
    for (const bool load_first : {true, false}) {
      PreparedMlp training(with({"jsonl"}));
      if (load_first) training.accelerator.load_state(folder / "checkpoint");
      training.accelerator.init_trackers("demo");
      if (!load_first) training.accelerator.load_state(folder / "checkpoint");
      for (int64_t step = 4; step <= 6; ++step) {
        training.accelerator.log({{"loss", step + (load_first ? 0.5 : 0.25)}}, step);
      }
    }
  });
  std::vector<std::string> steps;
  for (const json& line : lines()) steps.push_back(line["step"].dump() + ":" + line["loss"].dump());
  EXPECT_THAT(steps, ElementsAre("1:1.0", "2:2.0", "3:3.0", "4:4.25", "5:5.25", "6:6.25"));
}

TEST_F(TrackingTest, OwnTrackerOfAllProcessesIsCalledOnEach) {
  run(2, [&](const Rank& rank) {
    const auto notes = std::make_shared<NotesOfAll>(/*main_only=*/false);
    Accelerator accelerator(with({notes}));
    accelerator.init_trackers("demo", {{"lr", 1}});
    accelerator.log({{"rank", rank.rank}});
    EXPECT_EQ(accelerator.get_tracker("notes").unwrap<NotesOfAll>(), notes.get());
    accelerator.end_training();
    EXPECT_THAT(notes->notes(),
                ElementsAre("start demo", "config lr",
                            "-1 rank " + std::to_string(rank.rank) + ".000000", "finish"));
  });
}

TEST_F(TrackingTest, SignalsAreHandledOnlyWhereThatIsWanted) {
  run(1, [&](const Rank&) {
    for (const bool wanted : {false, true}) {
      struct sigaction before {};
      ::sigaction(SIGTERM, nullptr, &before);
      Accelerator accelerator(with({"csv"}));
      accelerator.init_trackers("demo", {}, {.flush_on_signals = wanted});
      struct sigaction during {};
      ::sigaction(SIGTERM, nullptr, &during);
      EXPECT_EQ(during.sa_handler != before.sa_handler, wanted);
      accelerator.end_training();
      ::sigaction(SIGTERM, nullptr, &during);
      EXPECT_EQ(during.sa_handler, before.sa_handler);
    }
  });
}

TEST_F(TrackingTest, WrongOrderOfCallsIsRefused) {
  run(1, [&](const Rank&) {
    Accelerator none(on_cpu());
    none.log({{"loss", 1}});  // nothing to write to
    none.init_trackers("demo");
    none.log({{"loss", 1}});
    EXPECT_THAT(error_text<UsageError>([&] { none.get_tracker("csv"); }),
                HasSubstr("there is no tracker \"csv\" in this run"));

    Accelerator accelerator(with({"jsonl"}));
    EXPECT_THAT(error_text<UsageError>([&] {
                  accelerator.log({{"loss", 1}});
                }),
                HasSubstr("the trackers have not been started"));
    accelerator.init_trackers("demo");
    EXPECT_THAT(error_text<UsageError>([&] { accelerator.init_trackers("demo"); }),
                HasSubstr("the trackers have been started"));
    const Tracker tracker = accelerator.get_tracker("jsonl");
    accelerator.end_training();
    EXPECT_THAT(error_text<UsageError>([&] {
                  accelerator.log({{"loss", 1}});
                }),
                HasSubstr("the trackers have ended"));
    EXPECT_THAT(error_text<UsageError>([&] {
                  tracker.log({{"loss", 1}});
                }),
                HasSubstr("the trackers have ended"));
  });
}

TEST_F(TrackingTest, WhatCannotBeTrackedIsRefusedEarly) {
  run(1, [&](const Rank&) {
    EXPECT_THAT(error_text<UsageError>([&] { Accelerator unknown(with({"tensorbord"})); }),
                HasSubstr("did you mean \"tensorboard\"?"));
    EXPECT_THAT(error_text<UsageError>([&] {
                  Accelerator twice(with({"csv", "all"}));
                }),
                HasSubstr("there are two trackers \"csv\""));
    AcceleratorOptions nowhere = on_cpu();
    nowhere.log_with = {"tensorboard"};
    Accelerator accelerator(nowhere);
    EXPECT_THAT(error_text<UsageError>([&] { accelerator.init_trackers("demo"); }),
                HasSubstr("tracker \"tensorboard\" needs a folder to write to"));
    AcceleratorOptions offline = with({TrackerChoice(std::string("mlflow"))});
    Accelerator lost(offline);
    EXPECT_THAT(error_text<TrackerError>([&] {
                  lost.init_trackers("demo", {},
                                     {.mlflow = {.tracking_uri = "http://127.0.0.1:9"}});
                }),
                HasSubstr("no answer from the tracking server"));
  });
}

}  // namespace
}  // namespace accelerate::test
