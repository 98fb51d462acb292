#include "support/rank_report.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace accelerate::test {
namespace {

struct FrameHeader {
  int32_t kind;
  int32_t line;
  uint64_t file_bytes;
  uint64_t text_bytes;
};

}  // namespace

void ReportWriter::write(const Report& report) {
  const FrameHeader header{static_cast<int32_t>(report.kind), report.line, report.file.size(),
                           report.text.size()};
  std::string frame(sizeof(header), '\0');
  std::memcpy(frame.data(), &header, sizeof(header));
  frame += report.file;
  frame += report.text;
  std::lock_guard lock(mutex_);
  for (size_t done = 0; done < frame.size();) {
    const ssize_t n = ::write(fd_, frame.data() + done, frame.size() - done);
    if (n <= 0) return;  // memory is out: the exit code still says that the rank failed
    done += static_cast<size_t>(n);
  }
}

std::vector<Report> read_reports(int fd) {
  const std::string bytes = read_all(fd);
  std::vector<Report> reports;
  size_t at = 0;
  while (bytes.size() - at >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    at += sizeof(header);
    if (bytes.size() - at < header.file_bytes + header.text_bytes) break;  // cut off by a kill
    Report report{.kind = static_cast<Report::Kind>(header.kind), .line = header.line};
    report.file = bytes.substr(at, header.file_bytes);
    report.text = bytes.substr(at + header.file_bytes, header.text_bytes);
    at += header.file_bytes + header.text_bytes;
    reports.push_back(std::move(report));
  }
  return reports;
}

std::string read_all(int fd) {
  std::string bytes;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t n = pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(bytes.size()));
    if (n <= 0) return bytes;
    bytes.append(buffer.data(), static_cast<size_t>(n));
  }
}

}  // namespace accelerate::test
