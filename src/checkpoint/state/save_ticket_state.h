// What the handles of a save and its writer share.
#pragma once

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>

#include "accelerate/checkpoint.h"

namespace accelerate {

struct SaveTicket::State {
  std::filesystem::path directory;  // never changes

  mutable std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  bool error_seen = false;
  std::exception_ptr error;
};

}  // namespace accelerate
