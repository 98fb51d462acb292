// What happens to the bytes of one stream of one worker on their way to the launcher's own.
#pragma once

#include <string>
#include <string_view>

#include "launch/output/line_tail.h"
#include "launch/output/output_sink.h"

namespace accelerate::launch {

enum class RelayMode {
  kImmediate,   // every byte at once: progress bars and prompts work
  kWholeLines,  // held until the line is complete, so that lines of several workers do not mix
  kPrefixed,    // as kWholeLines, each line after "[rank N] "
  kHidden,      // only remembered
};

// Passes bytes on to `sink` and remembers them in `tail`; both outlive it. Bytes are never changed,
// except for the prefix and, in prefixed mode, a line end after a last line that has none.
class OutputRelay {
 public:
  // A line longer than this is passed on in pieces.
  static constexpr size_t kMaxHeldBytes = size_t{1} << 20;

  OutputRelay(RelayMode mode, int rank, StreamKind stream, OutputSink& sink, LineTail& tail);

  void consume(std::string_view bytes);

  // The worker has ended: passes on what was held.
  void finish();

 private:
  void emit(std::string_view bytes);

  RelayMode mode_;
  std::string prefix_;
  StreamKind stream_;
  OutputSink& sink_;
  LineTail& tail_;
  std::string held_;
  bool at_line_start_ = true;
};

}  // namespace accelerate::launch
