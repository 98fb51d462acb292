// What a program logs, in the record of its run.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "accelerate/tracker.h"
#include "run_record/record_writer.h"

namespace accelerate {

// Puts numbers into the file of this rank, for the page of the run. It is there wherever the run is
// recorded, whatever log_with names; texts are left out.
class RecordTracker final : public GeneralTracker {
 public:
  // `writer` outlives the writer of the trackers.
  explicit RecordTracker(run_record::RecordWriter& writer) : writer_(writer) {}

  std::string name() const override { return "run_record"; }
  void store_init_configuration(const TrackerConfig& /*config*/) override {}
  // Values without a step are counted.
  void log(std::span<const NamedValue> values, const TrackedStep& at) override;
  void flush_before_end() override { writer_.flush(); }

 private:
  run_record::RecordWriter& writer_;
  int64_t next_step_ = 0;
};

}  // namespace accelerate
