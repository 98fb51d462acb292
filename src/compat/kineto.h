// libtorch's profiler, Kineto, without its types.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace accelerate::compat {

struct KinetoConfig {
  bool cpu = true;
  // Whose kernels and copies are recorded too: one that kineto_records().
  std::optional<c10::DeviceType> device{};
  bool record_shapes = false;
  bool profile_memory = false;
  bool with_stack = false;
  bool with_flops = false;
};

// One thing that was recorded. Times are nanoseconds of Unix time.
struct KinetoRecord {
  enum class Kind : uint8_t {
    kOperator,    // of ATen, or a function that autograd calls
    kSpan,        // of a user
    kBackward,    // a node of autograd
    kAllocation,  // of memory; a negative one gives back
    kDeviceWork,  // a kernel, a copy, a fill
    kOther,
  };
  Kind kind = Kind::kOther;
  std::string name{};
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t thread = 0;        // numbers of libtorch
  int64_t system_thread = 0;  // the same as the trace has it
  int64_t parent = -1;        // place of the record that was under way; an earlier one
  // Of autograd: what an operator would make, or what a node was made by, with its thread.
  int64_t sequence = -1;
  uint64_t forward_thread = 0;
  uint64_t flops = 0;
  std::string input_shapes{};
  std::vector<const void*> inputs{};            // addresses of TensorImpl; only for comparison
  c10::Device device = c10::Device(c10::kCPU);  // of device work and allocations
  int64_t bytes = 0;
  int64_t bytes_in_use = 0;  // after it, of what this and, on the CPU, earlier recordings saw
};

// What was recorded between start_kineto() and stop_kineto().
class KinetoTrace {
 public:
  struct Held;
  explicit KinetoTrace(std::unique_ptr<Held> held);
  KinetoTrace(KinetoTrace&&) noexcept;
  KinetoTrace& operator=(KinetoTrace&&) noexcept;
  ~KinetoTrace();

  int64_t begin_ns() const;
  // Parents before what they called.
  std::vector<KinetoRecord> records() const;
  // Writes the trace as JSON; only once. Throws c10::Error.
  void save(const std::filesystem::path& path);

 private:
  std::unique_ptr<Held> held_;
};

// Whether the work of such a device can be recorded beside what the CPU does.
bool kineto_records(c10::DeviceType device);
// Whether this thread, or all of the process, is being profiled: by whomever.
bool profiler_is_on();
// The profiler is one for the process, and works on the thread that starts it, and on those of its
// backward passes. A caller prepares, starts and stops it, on one thread.
void prepare_kineto(const KinetoConfig& config);
void start_kineto(const KinetoConfig& config);
KinetoTrace stop_kineto();
// Of the trace under way: a member of the object in its file.
void add_to_trace(const std::string& key, const std::string& json);

}  // namespace accelerate::compat
