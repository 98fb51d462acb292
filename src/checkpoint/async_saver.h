// Writes checkpoints beside the training.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "accelerate/checkpoint.h"
#include "checkpoint/save_ticket_state.h"

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

  bool busy() const;
  // Blocks until no save runs.
  void wait();
  // The error of the last save, unless SaveTicket::wait() has thrown it; null the second time.
  std::exception_ptr take_error();

  // Runs `write` on the thread; no save may run. `directory` is for the ticket.
  SaveTicket start(const std::filesystem::path& directory, std::function<void()> write);

 private:
  std::shared_ptr<SaveTicket::State> last_;
  std::thread thread_;
};

// A ticket of a save that is done.
SaveTicket finished_ticket(const std::filesystem::path& directory);

}  // namespace accelerate::checkpoint
