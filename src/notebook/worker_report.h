// How the function ended in a forked worker.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "accelerate/detail/packed_value.h"
#include "base/unique_fd.h"

namespace accelerate::notebook {

struct WorkerReport {
  enum class Kind : uint8_t { kResult, kException };

  Kind kind = Kind::kResult;
  bool lost_peer = false;        // a CommError: most likely the consequence of another failure
  int64_t nanoseconds = 0;       // when, on the clock that all processes of the machine share
  detail::PackedValue result{};  // of kResult
  std::string text{};            // of kException: type and message

  static WorkerReport of_result(detail::PackedValue result);
  static WorkerReport of_exception(const std::exception_ptr& exception);
};

// A report in memory that worker and caller share. The worker never waits for a reader, and a
// report that a killed worker had finished can still be read.
class ReportFile {
 public:
  // Throws CommError if there is no memory or no file descriptor left.
  ReportFile();

  // In the worker, once. False if there is no memory for it.
  bool write(const WorkerReport& report) const;
  // After the worker has ended, in any process that has inherited it.
  bool holds_result() const;
  // Nothing if there is no complete report.
  std::optional<WorkerReport> read() const;

 private:
  UniqueFd file_;
};

}  // namespace accelerate::notebook
