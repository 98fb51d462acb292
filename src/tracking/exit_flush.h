// Writes what trackers hold before the process ends in another way than by returning from main().
#pragma once

namespace accelerate::tracking {

class TrackerWriter;

// While one lives, what waits in its writer is written when the process is ended by a signal
// (SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU), crashes (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT:
// an exception that nobody catches is one), or calls exit(). A handler waits for the writer for a
// few seconds at most, then does what was done before. A signal that the program handles or ignores
// stays the program's.
class ExitFlush {
 public:
  // `writer` must outlive this.
  explicit ExitFlush(TrackerWriter& writer);
  ~ExitFlush();
  ExitFlush(const ExitFlush&) = delete;
  ExitFlush& operator=(const ExitFlush&) = delete;

 private:
  TrackerWriter* const writer_;
};

}  // namespace accelerate::tracking
