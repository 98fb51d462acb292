// Writes checkpoints beside the training.
#pragma once

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "accelerate/checkpoint.h"
#include "checkpoint/state/save_ticket_state.h"

namespace accelerate::checkpoint {

// At most one save at a time, on a thread of low priority whose libtorch operations use no other
// threads. Called by the thread of the training; the destructor waits for the save and logs how it
// failed if nobody has seen that.
class AsyncSaver {
 public:
  AsyncSaver() = default;
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Makes the thread, once. Throws CheckpointError if the system has none to give: before other
  // ranks count on this one.
  void prepare();

  bool busy() const;
  // Blocks until no save runs.
  void wait();
  // How the last save failed; null if it did not.
  std::exception_ptr error() const;
  // Whether SaveTicket::wait() has thrown that error, or set_error_seen() was called.
  bool error_is_seen() const;
  void set_error_seen();

  // Runs `write` on the thread, after prepare(); no save may run. `directory` is for the ticket.
  SaveTicket start(const std::filesystem::path& directory, std::function<void()> write);

  // A ticket of a save that is done.
  static SaveTicket finished(const std::filesystem::path& directory);

 private:
  void run();
  static void save(SaveTicket::State& state, std::function<void()> write);

  std::shared_ptr<SaveTicket::State> last_;  // null before the first save

  // For the thread: what is next, and whether that is the end.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> next_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace accelerate::checkpoint
