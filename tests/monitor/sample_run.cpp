// Writes the records of made-up runs, for tests of the page and its pictures: four ranks on two
// GPUs that train for some minutes, fail once, start again, and one of which others wait for.
//
// usage: sample_run FOLDER [SECONDS]   two finished runs and one under way, which goes on for
// SECONDS
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "run_record/record_writer.h"

namespace {

namespace fs = std::filesystem;
using namespace accelerate::run_record;

constexpr int kRanks = 4;
constexpr double kStepSeconds = 0.182;
constexpr const char* kHost = "node-a";

uint64_t micros(double seconds) { return static_cast<uint64_t>(seconds * 1e6); }

int64_t unix_micros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct Kind {
  std::string name;
  double rate;   // how fast the loss falls
  double floor;  // and where to
  int steps;
  bool is_live;
  std::string learning_rate;
};

class SampleRun {
 public:
  SampleRun(const fs::path& folder, const Kind& kind, int64_t ends_at)
      : folder_(folder / kind.name), kind_(kind), random_(static_cast<unsigned>(kind.steps)) {
    began_ = ends_at - static_cast<int64_t>(micros(kind.steps * kStepSeconds + 20));
    write_command();
    launcher_ = open(WriterKind::kLauncher, 0, 0);
    machine_ = open(WriterKind::kMachine, 0, 0);
    write_devices();
    start_attempt(0, 3);
  }

  void train(int from, int to) {
    for (int step = from; step < to; ++step) take_step(step);
  }

  // Rank 1 runs out of memory; all begin anew.
  void fail_once(int step) {
    const uint64_t time = time_of(step);
    launcher_->append(
        Lines{.time_us = time,
              .rank = 1,
              .lines = {"step 640  loss 2.3127",
                        "[rank 1 of 4] Error: CUDA out of memory: tried to allocate 2.1 GB"}});
    for (uint64_t rank = 0; rank < kRanks; ++rank) {
      launcher_->append(WorkerEnded{
          .time_us = time,
          .rank = rank,
          .fate = rank == 1 ? WorkerFate::kFailed : WorkerFate::kStopped,
          .how = rank == 1 ? "exited with status 1" : "was killed by signal 15 (SIGTERM)"});
    }
    start_attempt(1, static_cast<double>(time) / 1e6 + 6);
  }

  void checkpoint(int step) {
    const std::string what = "save_state checkpoints/checkpoint_" + std::to_string(step / 400);
    ranks_[0]->append(Checkpoint{.time_us = time_of(step), .took_us = micros(1.4), .what = what});
  }

  // Ranks 0, 1 and 3 wait for rank 2, which reads.
  void stall(int step) {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      const bool waits = rank != 2;
      ranks_[rank]->append(Now{.time_us = time_of(step) + micros(2),
                               .since_us = time_of(step),
                               .waits = waits,
                               .activity = waits ? "backward" : "loader: next batch",
                               .operation = waits ? "all_reduce float32[6291456]" : ""});
    }
    write_lines(step);
  }

  void end(int step) {
    for (uint64_t rank = 0; rank < kRanks; ++rank) {
      launcher_->append(WorkerEnded{.time_us = time_of(step),
                                    .rank = rank,
                                    .fate = WorkerFate::kSucceeded,
                                    .how = "exited with status 0"});
    }
    launcher_->append(End{.time_us = time_of(step)});
    command_->append(End{.time_us = time_of(step)});
  }

  void flush() {
    for (const auto& rank : ranks_) rank->flush();
    for (RecordWriter* each : {command_.get(), launcher_.get(), machine_.get()}) each->flush();
  }

 private:
  std::unique_ptr<RecordWriter> open(WriterKind writer, uint64_t index, uint64_t attempt) {
    return std::make_unique<RecordWriter>(folder_, Begin{.writer = writer,
                                                         .unix_us = began_,
                                                         .index = index,
                                                         .world_size = kRanks,
                                                         .attempt = attempt,
                                                         .pid = 4200 + index + 10 * attempt,
                                                         .host = kHost,
                                                         .program = "train_gpt2",
                                                         .version = "0.1.0"});
  }

  void write_command() {
    command_ = open(WriterKind::kCommand, 0, 0);
    const auto set = [&](const char* name, const std::string& value, const char* source,
                         bool given) {
      command_->append(Setting{.name = name, .value = value, .source = source, .is_given = given});
    };
    set("command", "./train_gpt2 --lr " + kind_.learning_rate + " --epochs 3", "the command line",
        true);
    set("folder", "/home/ada/gpt2", "where the launcher was started", true);
    set("num_processes", "4", "--num_processes", true);
    set("gpu_ids", "all", "default", false);
    set("mixed_precision", "bf16", "cluster.yaml:7", true);
    set("gradient_accumulation_steps", "4", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", true);
    set("max_restarts", "3", "--max_restarts", true);
    set("collective_timeout", "1800", "default", false);
    set("monitor", "true", "--monitor", true);
    set("grace_period", "(5 after a failure, 30 after a signal to the launcher)", "default", false);
  }

  void write_devices() {
    machine_->append(Device{.id = 1,
                            .kind = DeviceKind::kMachine,
                            .name = "64 processors",
                            .memory_bytes = 540'000'000'000});
    for (uint64_t gpu = 0; gpu < 2; ++gpu) {
      machine_->append(Device{.id = 2 + gpu,
                              .kind = DeviceKind::kGpu,
                              .index = gpu,
                              .name = "NVIDIA H200",
                              .memory_bytes = 150'754'820'096});
    }
    for (uint64_t rank = 0; rank < kRanks; ++rank) {
      machine_->append(Device{.id = 10 + rank, .kind = DeviceKind::kWorker, .index = rank});
    }
  }

  void start_attempt(uint64_t attempt, double at) {
    offset_ = attempt == 0 ? 3 : offset_ + 6;
    launcher_->append(Attempt{.time_us = micros(at), .restarts = attempt});
    ranks_.clear();
    first_step_ = last_step_;
    for (uint64_t rank = 0; rank < kRanks; ++rank) {
      launcher_->append(
          WorkerStarted{.time_us = micros(at), .rank = rank, .pid = 4200 + rank + 10 * attempt});
      ranks_.push_back(open(WriterKind::kRank, rank, attempt));
    }
  }

  uint64_t time_of(int step) const { return micros(offset_ + step * kStepSeconds); }
  double noise(double size) { return std::normal_distribution<double>(0, size)(random_); }

  void take_step(int step) {
    last_step_ = step + 1;
    const double loss = kind_.floor + (10.8 - kind_.floor) * std::exp(-step * kind_.rate) +
                        noise(0.12 + 0.25 * std::exp(-step * kind_.rate));
    for (size_t rank = 0; rank < kRanks; ++rank) {
      RecordWriter& writer = *ranks_[rank];
      const double slow = rank == 2 ? 0.016 : 0;
      const double data = 0.009 + slow + std::abs(noise(0.004)) + (step % 97 == 0 ? 0.05 : 0);
      const double backward = 0.083 - slow / 2 + noise(0.002);
      const double total = kStepSeconds + noise(0.003) + (step % 97 == 0 ? 0.05 : 0);
      writer.append(Steps{
          .time_us = time_of(step + 1),
          .last = static_cast<uint64_t>(step + 1 - first_step_),
          .count = 1,
          .total_us = micros(total),
          .longest_us = micros(total),
          .samples = 32,
          .parts = {{.name = writer.name_id("data"), .us = micros(data)},
                    {.name = writer.name_id("backward"), .us = micros(backward)},
                    {.name = writer.name_id("optimizer"), .us = micros(0.021 + noise(0.001))},
                    {.name = writer.name_id("exchange"), .us = micros(0.041 + noise(0.004))}}});
    }
    log_values(step, loss);
    if (step % 11 == 0) sample(step);
    if (step % 25 == 0) write_lines(step);
  }

  void log_values(int step, double loss) {
    RecordWriter& writer = *ranks_[0];
    Values values{.time_us = time_of(step + 1), .step = step};
    const double warm = std::min(1.0, step / 120.0);
    const double rate = std::atof(kind_.learning_rate.c_str()) * warm *
                        (0.5 + 0.5 * std::cos(3.14159 * step / 2400.0));
    for (const auto& [name, value] :
         {std::pair<const char*, double>{"loss", loss},
          {"grad_norm", 0.9 + 3 * std::exp(-step * 0.01) + std::abs(noise(0.25))},
          {"learning_rate", rate},
          {"tokens_seen", step * 4.0 * 32 * 1024}}) {
      values.values.push_back({.name = writer.name_id(name), .value = value});
    }
    if (step % 60 == 0) {
      values.values.push_back({.name = writer.name_id("eval/perplexity"),
                               .value = std::exp(std::min(8.0, loss + 0.1))});
    }
    writer.append(values);
  }

  void sample(int step) {
    const uint64_t time = time_of(step);
    machine_->append(
        Sample{.time_us = time,
               .device = 1,
               .busy = 0.22 + std::abs(noise(0.05)),
               .memory_bytes = 91'000'000'000 + static_cast<uint64_t>(step) * 2'000'000});
    for (uint64_t gpu = 0; gpu < 2; ++gpu) {
      machine_->append(
          Sample{.time_us = time,
                 .device = 2 + gpu,
                 .busy = std::min(1.0, 0.91 + noise(0.05) - (step % 97 < 12 ? 0.25 : 0.0)),
                 .memory_bytes = 118'400'000'000 + gpu * 1'700'000'000,
                 .watts = 604 + noise(20),
                 .celsius = 61 + 2.0 * static_cast<double>(gpu) + noise(1)});
    }
    for (uint64_t rank = 0; rank < kRanks; ++rank) {
      machine_->append(Sample{.time_us = time,
                              .device = 10 + rank,
                              .busy = 1.1 + std::abs(noise(0.2)),
                              .memory_bytes = 6'100'000'000 + rank * 120'000'000});
    }
  }

  void write_lines(int step) {
    for (uint64_t rank = 0; rank < kRanks; ++rank) {
      Lines lines{.time_us = time_of(step), .rank = rank};
      for (int back = 3; back >= 0; --back) {
        const int at = std::max(0, step - 20 * back);
        lines.lines.push_back("step " + std::to_string(at) + "  rank " + std::to_string(rank) +
                              "  batch of 32 samples, 1024 tokens each");
      }
      launcher_->append(lines);
    }
  }

  const fs::path folder_;
  const Kind kind_;
  std::mt19937 random_;
  int64_t began_ = 0;
  double offset_ = 0;  // of the clock of the steps
  int first_step_ = 0;
  int last_step_ = 0;
  std::unique_ptr<RecordWriter> command_;
  std::unique_ptr<RecordWriter> launcher_;
  std::unique_ptr<RecordWriter> machine_;
  std::vector<std::unique_ptr<RecordWriter>> ranks_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: sample_run FOLDER [SECONDS]\n");
    return 2;
  }
  const double live_seconds = argc > 2 ? std::atof(argv[2]) : 0;
  const int64_t now = unix_micros();
  for (const auto& [name, rate, floor, learning_rate] :
       {std::tuple{"gpt2-constant", 0.0035, 3.15, "3e-4"},
        {"gpt2-large-steps", 0.006, 3.3, "1e-3"}}) {
    SampleRun run(argv[1], {name, rate, floor, 1800, false, learning_rate},
                  now - int64_t{3'600'000'000});
    run.train(0, 1800);
    for (const int step : {400, 800, 1200, 1600}) run.checkpoint(step);
    run.end(1800);
    run.flush();
  }
  constexpr int kDone = 1700;
  SampleRun run(argv[1], {"gpt2-cosine", 0.0045, 2.95, kDone, true, "6e-4"}, now);
  run.train(0, 640);
  run.checkpoint(400);
  run.fail_once(640);
  run.train(640, kDone);
  run.checkpoint(800);
  run.checkpoint(1200);
  run.checkpoint(1600);
  run.flush();
  int step = kDone;
  const int last = kDone + static_cast<int>(live_seconds / kStepSeconds);
  for (; step < last; ++step) {
    run.train(step, step + 1);
    run.flush();
    std::this_thread::sleep_for(std::chrono::duration<double>(kStepSeconds));
  }
  run.stall(step);
  run.flush();
  return 0;
}
