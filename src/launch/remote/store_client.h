// Reads the store of a running job: libtorch's TCPStore, without libtorch.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace accelerate::launch {

// One connection to the store at an address. Its questions never wait in the store for a key: they
// ask whether there is one first. Every member throws CommError if the store does not answer before
// the deadline, or says something that a store would not. One thread.
class StoreClient {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws CommError that names the address where nothing listens, or no store.
  StoreClient(const std::string& host, int port, Clock::time_point deadline);

  void set_deadline(Clock::time_point deadline) { deadline_ = deadline; }

  // What is under `key`; nothing if there is no such key.
  std::optional<std::string> get(std::string_view key);
  // Puts `desired` under `key` if `expected` is there; "" also stands for no such key. Returns what
  // is there then.
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired);

 private:
  void connect(const std::string& host, int port);
  void introduce();
  void send(const std::string& bytes);
  void receive(void* into, size_t size);
  std::string receive_bytes();
  void wait_for(short events);
  [[noreturn]] void fail(const std::string& why) const;

  const std::string endpoint_;
  Clock::time_point deadline_;
  UniqueFd socket_;
};

}  // namespace accelerate::launch
