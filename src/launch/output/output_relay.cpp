#include "launch/output/output_relay.h"

namespace accelerate::launch {

OutputRelay::OutputRelay(RelayMode mode, int rank, StreamKind stream, OutputSink& sink,
                         LineTail& tail)
    : mode_(mode),
      prefix_("[rank " + std::to_string(rank) + "] "),
      stream_(stream),
      sink_(sink),
      tail_(tail) {}

void OutputRelay::consume(std::string_view bytes) {
  tail_.append(stream_, bytes);
  if (mode_ == RelayMode::kHidden) return;
  if (mode_ == RelayMode::kImmediate) {
    sink_.enqueue_live(bytes);
    return;
  }
  const std::string_view ends = mode_ == RelayMode::kPrefixed ? "\n" : "\r\n";
  const size_t last_end = bytes.find_last_of(ends);
  if (last_end == std::string_view::npos) {
    held_ += bytes;
  } else {
    held_ += bytes.substr(0, last_end + 1);
    emit(held_);
    held_ = bytes.substr(last_end + 1);
  }
  if (held_.size() > kMaxHeldBytes) {
    emit(held_);
    held_.clear();
  }
}

void OutputRelay::finish() {
  if (mode_ == RelayMode::kImmediate) sink_.end_live_line();
  emit(held_);
  held_.clear();
  if (mode_ == RelayMode::kPrefixed && !at_line_start_) {
    sink_.enqueue("\n");
    at_line_start_ = true;
  }
}

void OutputRelay::emit(std::string_view bytes) {
  if (mode_ != RelayMode::kPrefixed) {
    sink_.enqueue(bytes);
    return;
  }
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const bool ends_line = newline != std::string_view::npos;
    const std::string_view line = bytes.substr(0, ends_line ? newline + 1 : bytes.size());
    if (at_line_start_) sink_.enqueue(prefix_);
    sink_.enqueue(line);
    at_line_start_ = ends_line;
    bytes.remove_prefix(line.size());
  }
}

}  // namespace accelerate::launch
