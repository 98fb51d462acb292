#include "notebook/worker_report.h"

#include <ATen/ops/empty.h>
#include <cxxabi.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <typeinfo>

#include "accelerate/errors.h"

namespace accelerate::notebook {
namespace {

// What the file begins with; the text, then the bytes of tensors follow.
struct FileHead {
  uint64_t text_bytes = 0;
  uint64_t tensor_bytes = 0;
  int64_t nanoseconds = 0;
  WorkerReport::Kind kind = WorkerReport::Kind::kResult;
  bool lost_peer = false;
};

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool write_all(int file, const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool read_all(int file, void* data, size_t size, uint64_t position) {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t count = ::pread(file, next, size, static_cast<off_t>(position));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    next += count;
    position += static_cast<uint64_t>(count);
    size -= static_cast<size_t>(count);
  }
  return true;
}

// Nothing if what should follow is not there, or not all of it.
std::optional<FileHead> read_head(int file) {
  struct stat status {};
  FileHead head;
  if (fstat(file, &status) != 0 || !read_all(file, &head, sizeof head, 0)) return std::nullopt;
  const uint64_t size = static_cast<uint64_t>(status.st_size) - sizeof head;
  if (head.text_bytes > size || head.tensor_bytes != size - head.text_bytes) return std::nullopt;
  return head;
}

std::string name_of(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return name == nullptr ? type.name() : name.get();
}

// The text of an error without the rank in front: it is told by the error that carries it.
std::string without_rank(std::string text) {
  if (text.starts_with("[rank ")) {
    const size_t end = text.find("] ");
    if (end != std::string::npos) text.erase(0, end + 2);
  }
  return text;
}

}  // namespace

WorkerReport WorkerReport::of_result(detail::PackedValue result) {
  return {.kind = Kind::kResult, .nanoseconds = now(), .result = std::move(result)};
}

WorkerReport WorkerReport::of_exception(const std::exception_ptr& exception) {
  WorkerReport report{.kind = Kind::kException, .nanoseconds = now()};
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    report.lost_peer = dynamic_cast<const CommError*>(&error) != nullptr;
    report.text = without_rank(error.what());
  } catch (const std::exception& error) {
    report.text = name_of(typeid(error)) + ": " + error.what();
  } catch (...) {
    report.text = "an exception that is not a std::exception";
  }
  return report;
}

ReportFile::ReportFile() : file_(memfd_create("accelerate-worker", MFD_CLOEXEC)) {
  if (file_) return;
  throw CommError({.what = "cannot start a worker: " + std::string(std::strerror(errno)),
                   .hint = "raise the limit on open files (ulimit -n)"});
}

bool ReportFile::write(const WorkerReport& report) const {
  const bool is_result = report.kind == WorkerReport::Kind::kResult;
  const std::string& text = is_result ? report.result.header : report.text;
  const at::Tensor& bytes = report.result.bytes;
  FileHead head;
  head.text_bytes = text.size();
  head.tensor_bytes = bytes.defined() ? static_cast<uint64_t>(bytes.numel()) : 0;
  head.nanoseconds = report.nanoseconds;
  head.kind = report.kind;
  head.lost_peer = report.lost_peer;
  return write_all(file_.get(), &head, sizeof head) &&
         write_all(file_.get(), text.data(), text.size()) &&
         (head.tensor_bytes == 0 || write_all(file_.get(), bytes.data_ptr(), head.tensor_bytes));
}

bool ReportFile::holds_result() const {
  const std::optional<FileHead> head = read_head(file_.get());
  return head && head->kind == WorkerReport::Kind::kResult;
}

std::optional<WorkerReport> ReportFile::read() const {
  const std::optional<FileHead> head = read_head(file_.get());
  if (!head) return std::nullopt;
  std::string text(head->text_bytes, '\0');
  const at::Tensor bytes = at::empty({static_cast<int64_t>(head->tensor_bytes)}, at::kByte);
  if (!read_all(file_.get(), text.data(), text.size(), sizeof *head) ||
      !read_all(file_.get(), bytes.data_ptr(), head->tensor_bytes, sizeof *head + text.size())) {
    return std::nullopt;
  }
  WorkerReport report{
      .kind = head->kind, .lost_peer = head->lost_peer, .nanoseconds = head->nanoseconds};
  if (head->kind == WorkerReport::Kind::kResult) {
    report.result = {.header = std::move(text), .bytes = bytes};
  } else {
    report.text = std::move(text);
  }
  return report;
}

}  // namespace accelerate::notebook
