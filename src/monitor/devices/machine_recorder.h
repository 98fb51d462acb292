// Records what the devices of this machine do during a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "monitor/devices/gpu_sampler.h"
#include "monitor/devices/process_sampler.h"
#include "monitor/view/run_view.h"
#include "run_record/record_writer.h"

namespace accelerate::monitor {

// Writes the file of a machine: its processors, its memory, its GPUs and the ranks that run here.
// Used by one thread.
class MachineRecorder {
 public:
  static constexpr std::chrono::seconds kInterval{2};

  // Throws ConfigError as RecordWriter.
  MachineRecorder(const std::filesystem::path& folder, uint64_t machine);

  // Takes a sample if it is time for one. Which ranks there are `run` says, by host and process.
  void tick(const RunView& run);
  // Writes the end.
  void finish();

 private:
  uint64_t device_id(run_record::DeviceKind kind, uint64_t index, const std::string& name,
                     uint64_t memory_bytes);

  const std::string host_;
  ProcessSampler processes_;
  GpuSampler gpus_;
  run_record::RecordWriter writer_;
  std::map<std::pair<run_record::DeviceKind, uint64_t>, uint64_t> ids_;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace accelerate::monitor
