// The reader of libtorch's store, against things that are none. With real stores:
// launch_status_test.
#include "launch/remote/store_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "accelerate/errors.h"
#include "launch/remote/job_inquiry.h"

namespace accelerate::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Listens at a port of this machine, and treats one guest as `serve` says.
class FakeStore {
 public:
  explicit FakeStore(std::function<void(int)> serve) {
    listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size);
    listen(listener_.get(), 1);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, serve = std::move(serve)] {
      const UniqueFd guest(accept(listener_.get(), nullptr, nullptr));
      serve(guest.get());
    });
  }
  ~FakeStore() { thread_.join(); }

  // What is said of it.
  std::string refusal(milliseconds patience = std::chrono::seconds(60)) const {
    try {
      ask_job({.host = "127.0.0.1", .port = port_}, patience);
    } catch (const CommError& error) {
      return error.message();
    }
    return "taken";
  }

 private:
  UniqueFd listener_;
  int port_ = 0;
  std::thread thread_;
};

// What a client says of itself: two bytes of queries, the magic number and one to be repeated.
constexpr size_t kIntroduction = 10;

std::string receive_all(int guest, size_t size) {
  std::string bytes(size, '\0');
  return recv(guest, bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size) ? bytes : "";
}

TEST(StoreClient, IsNotTakenInByAnythingElseThatListens) {
  const FakeStore other([](int guest) {
    receive_all(guest, kIntroduction);
    send(guest, "HTTP/1.1 400", 12, MSG_NOSIGNAL);
  });
  EXPECT_THAT(other.refusal(),
              HasSubstr("is not the store of a job: something else listens there"));
}

TEST(StoreClient, NamesOneThatHangsUp) {
  const FakeStore other([](int guest) { receive_all(guest, kIntroduction); });
  EXPECT_THAT(other.refusal(), HasSubstr("ended the connection"));
}

TEST(StoreClient, DoesNotWaitForever) {
  const FakeStore other([](int guest) {
    receive_all(guest, kIntroduction);
    char byte = 0;
    [[maybe_unused]] const ssize_t end = recv(guest, &byte, 1, 0);  // until it has gone
  });
  EXPECT_THAT(other.refusal(milliseconds(100)), HasSubstr("does not answer"));
}

TEST(StoreClient, RefusesALengthThatNoValueHas) {
  const FakeStore other([](int guest) {
    const std::string said = receive_all(guest, kIntroduction);
    send(guest, said.data() + 6, 4, MSG_NOSIGNAL);  // as a store does
    receive_all(guest, 1 + 8 + 8 + sizeof("/accelerate/job") - 1);
    const char is_there = 0;
    send(guest, &is_there, 1, MSG_NOSIGNAL);
    receive_all(guest, 1 + 8 + sizeof("/accelerate/job") - 1);
    const uint64_t size = ~uint64_t{0};
    send(guest, &size, sizeof size, MSG_NOSIGNAL);
  });
  EXPECT_THAT(other.refusal(), HasSubstr("gave an answer that is not one of a store"));
}

TEST(StoreClient, AStoreWithoutAJobOfThisLibraryIsNamed) {
  const FakeStore other([](int guest) {
    const std::string said = receive_all(guest, kIntroduction);
    send(guest, said.data() + 6, 4, MSG_NOSIGNAL);
    receive_all(guest, 1 + 8 + 8 + sizeof("/accelerate/job") - 1);
    const char is_not_there = 1;
    send(guest, &is_not_there, 1, MSG_NOSIGNAL);
  });
  EXPECT_THAT(other.refusal(), HasSubstr("is not that of a program of this library"));
}

}  // namespace
}  // namespace accelerate::launch
