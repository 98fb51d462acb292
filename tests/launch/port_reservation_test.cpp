#include "launch/plan/port_reservation.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <set>
#include <string>

#include "accelerate/errors.h"

namespace accelerate::launch {
namespace {

enum class Reuse { kNo, kYes };

struct Server {
  UniqueFd socket;
  int error = 0;  // errno of the first call that failed
};

template <class Address>
Server serve(const Address& address, int family, Reuse reuse) {
  Server server{UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  const int on = 1;
  if (reuse == Reuse::kYes) {
    setsockopt(server.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (bind(server.socket.get(), generic, sizeof address) != 0 ||
      listen(server.socket.get(), 16) != 0) {
    server.error = errno;
  }
  return server;
}

Server serve_on_loopback(int port, Reuse reuse) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return serve(address, AF_INET, reuse);
}

Server serve_everywhere(int port, Reuse reuse) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_any;
  address.sin6_port = htons(static_cast<uint16_t>(port));
  return serve(address, AF_INET6, reuse);
}

bool machine_has_ipv6() { return serve_everywhere(0, Reuse::kNo).error == 0; }

bool can_connect(int port) {
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

TEST(PortReservation, LetsAServerThatReusesAddressesInOnLoopback) {
  const PortReservation reservation = PortReservation::any();
  const Server server = serve_on_loopback(reservation.port(), Reuse::kYes);
  ASSERT_EQ(server.error, 0);
  EXPECT_TRUE(can_connect(reservation.port()));
}

TEST(PortReservation, LetsAServerThatReusesAddressesInOnAllAddresses) {
  if (!machine_has_ipv6()) GTEST_SKIP() << "this machine has no IPv6";
  const PortReservation reservation = PortReservation::any();
  const Server server = serve_everywhere(reservation.port(), Reuse::kYes);
  ASSERT_EQ(server.error, 0);
  EXPECT_TRUE(can_connect(reservation.port()));
}

TEST(PortReservation, KeepsEveryoneElseOut) {
  const PortReservation reservation = PortReservation::any();
  EXPECT_EQ(serve_on_loopback(reservation.port(), Reuse::kNo).error, EADDRINUSE);
  if (machine_has_ipv6()) {
    EXPECT_EQ(serve_everywhere(reservation.port(), Reuse::kNo).error, EADDRINUSE);
  }
}

TEST(PortReservation, DoesNotAnswerConnectionsItself) {
  const PortReservation reservation = PortReservation::any();
  EXPECT_FALSE(can_connect(reservation.port()));
}

TEST(PortReservation, ReservationsAtTheSameTimeDiffer) {
  std::vector<PortReservation> reservations;
  std::set<int> ports;
  for (int i = 0; i < 200; ++i) {
    reservations.push_back(PortReservation::any());
    ports.insert(reservations.back().port());
  }
  EXPECT_EQ(ports.size(), 200u);
}

TEST(PortReservation, TheSocketDoesNotReachWorkers) {
  const PortReservation reservation = PortReservation::any();
  // The descriptor of the reservation is the newest one: the next is one above it.
  const UniqueFd next(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(fcntl(next.get() - 1, F_GETFD), FD_CLOEXEC);
}

TEST(PortReservation, TakesANamedPortThatIsFree) {
  const int port = PortReservation::any().port();
  const PortReservation reservation = PortReservation::of(port);
  EXPECT_EQ(reservation.port(), port);
  EXPECT_EQ(serve_on_loopback(port, Reuse::kYes).error, 0);
}

TEST(PortReservation, RefusesANamedPortThatIsServed) {
  const int port = PortReservation::any().port();
  const Server server = serve_on_loopback(port, Reuse::kYes);
  ASSERT_EQ(server.error, 0);
  try {
    PortReservation::of(port);
    FAIL() << "the port is taken";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.message(), "port " + std::to_string(port) + " is in use by another process");
    EXPECT_EQ(error.where(), "--main_process_port");
  }
}

}  // namespace
}  // namespace accelerate::launch
