#include "monitor/devices/machine_recorder.h"

#include <unistd.h>

#include "base/host_name.h"

namespace accelerate::monitor {
namespace {

using run_record::DeviceKind;
using run_record::WriterKind;

}  // namespace

MachineRecorder::MachineRecorder(const std::filesystem::path& folder, uint64_t machine)
    : host_(host_name()),
      writer_(folder, {.writer = WriterKind::kMachine,
                       .index = machine,
                       .machine = machine,
                       .pid = static_cast<uint64_t>(getpid()),
                       .host = host_}) {
  processes_.machine();
}

uint64_t MachineRecorder::device_id(DeviceKind kind, uint64_t index, const std::string& name,
                                    uint64_t memory_bytes) {
  const auto [found, is_new] = ids_.try_emplace({kind, index}, ids_.size() + 1);
  if (is_new) {
    writer_.append(run_record::Device{.id = found->second,
                                      .kind = kind,
                                      .index = index,
                                      .name = name,
                                      .memory_bytes = memory_bytes});
  }
  return found->second;
}

void MachineRecorder::tick(const RunView& run) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kInterval;
  const uint64_t time = writer_.now_us();
  if (const auto usage = processes_.machine()) {
    const uint64_t id =
        device_id(DeviceKind::kMachine, 0, std::to_string(processes_.processors()) + " processors",
                  processes_.machine_memory_bytes());
    writer_.append(run_record::Sample{
        .time_us = time, .device = id, .busy = usage->busy, .memory_bytes = usage->memory_bytes});
  }
  for (const GpuUsage& gpu : gpus_.sample()) {
    const uint64_t id = device_id(DeviceKind::kGpu, gpu.index, gpu.name, gpu.memory_bytes);
    writer_.append(run_record::Sample{.time_us = time,
                                      .device = id,
                                      .busy = gpu.busy,
                                      .memory_bytes = gpu.used_bytes,
                                      .watts = gpu.watts,
                                      .celsius = gpu.celsius});
  }
  for (const auto& [number, rank] : run.ranks()) {
    if (rank.host != host_ || rank.pid == 0 || !rank.ended.empty()) continue;
    const auto usage = processes_.process(static_cast<pid_t>(rank.pid));
    if (!usage) continue;
    const uint64_t id = device_id(DeviceKind::kWorker, number, "", 0);
    writer_.append(run_record::Sample{
        .time_us = time, .device = id, .busy = usage->busy, .memory_bytes = usage->memory_bytes});
  }
  writer_.flush();
}

void MachineRecorder::finish() {
  writer_.append(run_record::End{.time_us = writer_.now_us()});
  writer_.flush();
}

}  // namespace accelerate::monitor
