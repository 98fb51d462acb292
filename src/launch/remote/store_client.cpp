#include "launch/remote/store_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "accelerate/errors.h"
#include "base/random_id.h"
#include "launch/remote/network.h"

namespace accelerate::launch {
namespace {

// The queries of libtorch's TCPStore that are used here: one byte, then fields. Numbers are in the
// order of bytes of the machine, texts have their length in 64 bits before them. A job on machines
// of another order of bytes cannot talk to itself either.
enum class StoreQuery : uint8_t {
  kValidate = 0,
  kCompareSet = 2,
  kGet = 3,
  kCheck = 5,
  kPing = 13
};
constexpr uint32_t kStoreMagic = 0x3C85F7CE;
constexpr uint8_t kIsThere = 0;
constexpr uint8_t kIsNotThere = 1;
constexpr char kKeyPrefix = '/';  // before every key of the user
constexpr uint64_t kMostValue = uint64_t{64} << 20;

class StoreMessage {
 public:
  explicit StoreMessage(StoreQuery query) : bytes_(1, static_cast<char>(query)) {}

  template <class Number>
  StoreMessage& number(Number value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes_.append(raw, sizeof raw);
    return *this;
  }
  StoreMessage& text(std::string_view text) {
    number(static_cast<uint64_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  StoreMessage& key(std::string_view key) { return text(kKeyPrefix + std::string(key)); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace

StoreClient::StoreClient(const std::string& host, int port, Clock::time_point deadline)
    : endpoint_(host + ":" + std::to_string(port)), deadline_(deadline) {
  connect(host, port);
  introduce();
}

void StoreClient::fail(const std::string& why) const {
  throw CommError({.what = "the store of the job at " + endpoint_ + " " + why,
                   .where = "MASTER_ADDR and MASTER_PORT of its ranks",
                   .hint = "rank 0 hosts it: see whether that process still runs, and is not "
                           "stopped"});
}

void StoreClient::connect(const std::string& host, int port) {
  std::string error = "no answer";
  for (Connecting& attempt : begin_connecting(resolve(host, port, Resolving::kNames))) {
    if (!attempt.error.empty()) error = attempt.error;
    if (!attempt.socket) continue;
    socket_ = std::move(attempt.socket);
    wait_for(POLLOUT);
    error = connection_error(socket_.get());
    if (error.empty()) return;
    socket_.reset();
  }
  fail("cannot be reached: " + error);
}

void StoreClient::introduce() {
  const auto nonce = static_cast<uint32_t>(random_bits());
  send(StoreMessage(StoreQuery::kValidate).number(kStoreMagic).bytes() +
       StoreMessage(StoreQuery::kPing).number(nonce).bytes());
  uint32_t echo = 0;
  receive(&echo, sizeof echo);
  if (echo != nonce) fail("is not the store of a job: something else listens there");
}

std::optional<std::string> StoreClient::get(std::string_view key) {
  send(StoreMessage(StoreQuery::kCheck).number(uint64_t{1}).key(key).bytes());
  uint8_t answer = 0;
  receive(&answer, sizeof answer);
  if (answer == kIsNotThere) return std::nullopt;
  if (answer != kIsThere) fail("gave an answer that is not one of a store");
  send(StoreMessage(StoreQuery::kGet).key(key).bytes());
  return receive_bytes();
}

std::string StoreClient::compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired) {
  send(StoreMessage(StoreQuery::kCompareSet).key(key).text(expected).text(desired).bytes());
  return receive_bytes();
}

void StoreClient::wait_for(short events) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    pollfd waiting{.fd = socket_.get(), .events = events, .revents = 0};
    const int count = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (count > 0) return;
    if (count < 0 && errno == EINTR) continue;
    fail("does not answer");
  }
}

void StoreClient::send(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count =
        ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(POLLOUT);
    } else if (errno != EINTR) {
      fail("ended the connection: " + std::string(std::strerror(errno)));
    }
  }
}

void StoreClient::receive(void* into, size_t size) {
  char* at = static_cast<char*>(into);
  while (size > 0) {
    const ssize_t count = recv(socket_.get(), at, size, 0);
    if (count > 0) {
      at += count;
      size -= static_cast<size_t>(count);
    } else if (count == 0) {
      fail("ended the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(POLLIN);
    } else if (errno != EINTR) {
      fail("ended the connection: " + std::string(std::strerror(errno)));
    }
  }
}

std::string StoreClient::receive_bytes() {
  uint64_t size = 0;
  receive(&size, sizeof size);
  if (size > kMostValue) fail("gave an answer that is not one of a store");
  std::string bytes(size, '\0');
  receive(bytes.data(), bytes.size());
  return bytes;
}

}  // namespace accelerate::launch
