// What a ProfileTrace holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/profiler.h"
#include "compat/kineto.h"
#include "core/profile/event_follower.h"

namespace accelerate {

// The parameters of modules, by the addresses that records of operators have.
struct ModuleNames {
  std::vector<std::string> names{};        // of all modules, outer ones first
  std::map<const void*, size_t> owners{};  // of a parameter or its memory: which name
};

// A file that is gone with its last user.
class TemporaryTrace {
 public:
  TemporaryTrace();
  ~TemporaryTrace();
  TemporaryTrace(const TemporaryTrace&) = delete;
  TemporaryTrace& operator=(const TemporaryTrace&) = delete;
  std::filesystem::path path() const { return folder_ / "trace.json"; }

 private:
  std::filesystem::path folder_;
};

struct ProfileTrace::Impl {
  mutable compat::KinetoTrace kineto;  // writing its file changes it
  RecordedEvents events;
  int64_t clock_ns = 0;  // Unix time less steady time
  int64_t own_system_thread = 0;
  int64_t step_num = 0;
  bool has_shapes = false;
  bool has_memory = false;
  std::optional<ModuleNames> modules{};

  // What libtorch has recorded; made when it is first asked for.
  const std::vector<compat::KinetoRecord>& records() const;
  // The trace as libtorch writes it.
  std::filesystem::path own_file() const;

  mutable std::optional<std::vector<compat::KinetoRecord>> made_records{};
  mutable std::unique_ptr<TemporaryTrace> saved{};
};

// The nearest record around `place` that a processor works on; -1 if there is none.
int64_t processor_parent(const std::vector<compat::KinetoRecord>& records, int64_t place);
// Whether one of the records around `place` that a processor works on has the same name.
bool is_inside_of_its_name(const std::vector<compat::KinetoRecord>& records, int64_t place);

}  // namespace accelerate
