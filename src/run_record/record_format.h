// The records of a run, as they stand in its files. docs/run_record.md describes the bytes.
//
// A run is a folder. Each process that has something to say writes one file there, which only
// grows: a rank about its steps and values, a launcher about its workers, a sampler about the
// devices of a machine. Standard C++ alone: open to every room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

namespace accelerate::run_record {

// What a file begins with.
inline constexpr std::string_view kMagic{"ACCRUN\x01\n", 8};
// In front of each record: checksum (4 bytes), size of what follows (2), kind (1), 0 (1).
inline constexpr size_t kFrameBytes = 8;
inline constexpr size_t kMostPayload = 0xffff;

enum class RecordKind : uint8_t {
  kBegin = 1,
  kName,
  kSteps,
  kValues,
  kNow,
  kCheckpoint,
  kLost,
  kSetting,
  kWorkerStarted,
  kLines,
  kWorkerEnded,
  kAttempt,
  kDevice,
  kSample,
  kEnd,
};

enum class WriterKind : uint8_t {
  kRank = 1,  // a worker
  kCommand,   // what the user called: settings
  kLauncher,  // of one machine
  kMachine,   // samples of the devices of one machine
};

// All times are microseconds since the begin of the file.

// The first record of a file.
struct Begin {
  static constexpr RecordKind kKind = RecordKind::kBegin;
  WriterKind writer = WriterKind::kRank;
  int64_t unix_us = 0;  // when the file began
  uint64_t index = 0;   // of the rank or machine
  uint64_t world_size = 0;
  uint64_t machine = 0;
  uint64_t attempt = 0;  // restarts before it
  uint64_t pid = 0;
  std::string host{};
  std::string program{};
  std::string version{};  // of the library or program that writes

  static auto fields(auto& self) {
    return std::tie(self.writer, self.unix_us, self.index, self.world_size, self.machine,
                    self.attempt, self.pid, self.host, self.program, self.version);
  }
};

// A name that later records of the file refer to by its number.
struct Name {
  static constexpr RecordKind kKind = RecordKind::kName;
  uint64_t id = 0;
  std::string text{};

  static auto fields(auto& self) { return std::tie(self.id, self.text); }
};

// One part of a step: "data", "backward".
struct StepPart {
  uint64_t name = 0;
  uint64_t us = 0;  // of all steps of the record together

  static auto fields(auto& self) { return std::tie(self.name, self.us); }
};

// Steps that ended one after the other, together where they are short.
struct Steps {
  static constexpr RecordKind kKind = RecordKind::kSteps;
  uint64_t time_us = 0;     // when the last of them ended
  uint64_t last = 0;        // number of the last step of this process, from 1
  uint64_t count = 1;       // of steps
  uint64_t total_us = 0;    // how long they took together
  uint64_t longest_us = 0;  // and one of them at most
  uint64_t samples = 0;     // that this rank used; 0: not known
  std::vector<StepPart> parts{};

  static auto fields(auto& self) {
    return std::tie(self.time_us, self.last, self.count, self.total_us, self.longest_us,
                    self.samples, self.parts);
  }
};

struct Value {
  uint64_t name = 0;
  double value = 0;

  static auto fields(auto& self) { return std::tie(self.name, self.value); }
};

// What the user logged, under the user's own step.
struct Values {
  static constexpr RecordKind kKind = RecordKind::kValues;
  uint64_t time_us = 0;
  int64_t step = 0;
  std::vector<Value> values{};

  static auto fields(auto& self) { return std::tie(self.time_us, self.step, self.values); }
};

// What a rank is in the middle of, written when it has lasted for some time and when it is over.
struct Now {
  static constexpr RecordKind kKind = RecordKind::kNow;
  uint64_t time_us = 0;
  uint64_t since_us = 0;    // when it began
  bool waits = false;       // for other ranks
  std::string activity{};   // what the user called; "": nothing that lasts
  std::string operation{};  // the collective of it, if there is one

  static auto fields(auto& self) {
    return std::tie(self.time_us, self.since_us, self.waits, self.activity, self.operation);
  }
};

// A save or load that has ended, or that has begun: it lasted for nothing then and is open.
struct Checkpoint {
  static constexpr RecordKind kKind = RecordKind::kCheckpoint;
  uint64_t time_us = 0;  // of its begin
  uint64_t took_us = 0;
  bool is_open = false;
  bool failed = false;
  std::string what{};

  static auto fields(auto& self) {
    return std::tie(self.time_us, self.took_us, self.is_open, self.failed, self.what);
  }
};

// Something could not be recorded; how often so far.
struct Lost {
  static constexpr RecordKind kKind = RecordKind::kLost;
  uint64_t time_us = 0;
  uint64_t events = 0;
  uint64_t values = 0;

  static auto fields(auto& self) { return std::tie(self.time_us, self.events, self.values); }
};

// A setting of the run and who gave it its value.
struct Setting {
  static constexpr RecordKind kKind = RecordKind::kSetting;
  std::string name{};
  std::string value{};
  std::string source{};   // "--num_processes", "c.yaml:7", "default"
  bool is_given = false;  // by somebody

  static auto fields(auto& self) {
    return std::tie(self.name, self.value, self.source, self.is_given);
  }
};

struct WorkerStarted {
  static constexpr RecordKind kKind = RecordKind::kWorkerStarted;
  uint64_t time_us = 0;
  uint64_t rank = 0;
  uint64_t pid = 0;

  static auto fields(auto& self) { return std::tie(self.time_us, self.rank, self.pid); }
};

// The newest lines that a worker has written, fit to print.
struct Lines {
  static constexpr RecordKind kKind = RecordKind::kLines;
  uint64_t time_us = 0;
  uint64_t rank = 0;
  std::vector<std::string> lines{};

  static auto fields(auto& self) { return std::tie(self.time_us, self.rank, self.lines); }
};

enum class WorkerFate : uint8_t { kSucceeded = 1, kFailed, kStopped, kKilled };

struct WorkerEnded {
  static constexpr RecordKind kKind = RecordKind::kWorkerEnded;
  uint64_t time_us = 0;
  uint64_t rank = 0;
  WorkerFate fate = WorkerFate::kSucceeded;
  std::string how{};  // "exit code 1", "SIGKILL"

  static auto fields(auto& self) { return std::tie(self.time_us, self.rank, self.fate, self.how); }
};

// The launcher starts its workers, for the first time or again.
struct Attempt {
  static constexpr RecordKind kKind = RecordKind::kAttempt;
  uint64_t time_us = 0;
  uint64_t restarts = 0;

  static auto fields(auto& self) { return std::tie(self.time_us, self.restarts); }
};

enum class DeviceKind : uint8_t {
  kMachine = 1,  // processors and memory of the machine
  kWorker,       // a process and what it has started
  kGpu,
};

struct Device {
  static constexpr RecordKind kKind = RecordKind::kDevice;
  uint64_t id = 0;  // in this file
  DeviceKind kind = DeviceKind::kMachine;
  uint64_t index = 0;  // number of the GPU, or the rank
  std::string name{};
  uint64_t memory_bytes = 0;  // 0: not known

  static auto fields(auto& self) {
    return std::tie(self.id, self.kind, self.index, self.name, self.memory_bytes);
  }
};

struct Sample {
  static constexpr RecordKind kKind = RecordKind::kSample;
  uint64_t time_us = 0;
  uint64_t device = 0;
  double busy = 0;  // part of all of it, 0 to 1; of a worker: processors that it keeps busy
  uint64_t memory_bytes = 0;
  double watts = 0;    // 0: not known
  double celsius = 0;  // 0: not known

  static auto fields(auto& self) {
    return std::tie(self.time_us, self.device, self.busy, self.memory_bytes, self.watts,
                    self.celsius);
  }
};

// The writer has ended in order; nothing follows.
struct End {
  static constexpr RecordKind kKind = RecordKind::kEnd;
  uint64_t time_us = 0;
  int64_t exit_code = 0;  // of a launcher: that of the job

  static auto fields(auto& self) { return std::tie(self.time_us, self.exit_code); }
};

using Record = std::variant<Begin, Name, Steps, Values, Now, Checkpoint, Lost, Setting,
                            WorkerStarted, Lines, WorkerEnded, Attempt, Device, Sample, End>;

// Appends `record` with its frame to `bytes`. Texts and lists that are too long for a record are
// cut off.
void encode(const Record& record, std::string& bytes);

// Of the bytes behind a frame. Nothing where they are not such a record; bytes that a later version
// added at its end are skipped.
std::optional<Record> decode(RecordKind kind, std::string_view payload);

// The checksum of a frame: over its last four bytes and the payload.
uint32_t checksum(std::string_view frame_tail, std::string_view payload);

// The name of the file of a writer: "rank_0-000.rec". A process that finds it there takes the next
// `number`.
std::string file_name(WriterKind writer, uint64_t index, int number);

// The variable by which workers are told the folder.
inline constexpr const char* kFolderVariable = "ACCELERATE_RUN_DIR";

}  // namespace accelerate::run_record
