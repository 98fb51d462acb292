// What a forked rank tells the test program: failures, skips, its result, the exception that
// ended it. A report is appended to a file that both share, so that a rank never blocks on a
// reader and a rank that was killed leaves all that it had said.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace accelerate::test {

struct Report {
  enum class Kind { kFailure, kSkip, kException, kResult };
  Kind kind = Kind::kFailure;
  std::string file{};  // where, for failures and skips
  int line = 0;
  std::string text{};
};

// The rank's end. Any thread may write; the file descriptor stays the caller's.
class ReportWriter {
 public:
  explicit ReportWriter(int fd) : fd_(fd) {}
  void write(const Report& report);

 private:
  int fd_;
  std::mutex mutex_;
};

// The test program's end: all complete reports in the order they were written.
std::vector<Report> read_reports(int fd);

// All bytes of the file behind `fd`, without moving its position.
std::string read_all(int fd);

}  // namespace accelerate::test
