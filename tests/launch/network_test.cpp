#include "launch/remote/network.h"

#include <gmock/gmock.h>

#include <chrono>
#include <future>

#include "accelerate/errors.h"
#include "launch/plan/port_reservation.h"

namespace accelerate::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Nobody else on this machine gets the port while a test runs.
class ListenEverywhere : public testing::Test {
 protected:
  PortReservation reservation_ = PortReservation::any();
  int port_ = reservation_.port();
};

TEST_F(ListenEverywhere, TwoAtOnePortAreRefused) {
  const UniqueFd first = listen_everywhere(port_);
  ASSERT_TRUE(first);
  try {
    listen_everywhere(port_);
    FAIL() << "both listen";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.message(), "port " + std::to_string(port_) + " is in use by another process");
    EXPECT_EQ(error.where(), "--main_process_port");
  }
}

TEST_F(ListenEverywhere, WaitsForOneThatIsJustEnding) {
  UniqueFd ending = listen_everywhere(port_);
  auto next = std::async(std::launch::async, [&] { return listen_everywhere(port_, seconds(30)); });
  EXPECT_EQ(next.wait_for(milliseconds(100)), std::future_status::timeout);
  ending.reset();
  EXPECT_TRUE(next.get());
}

TEST_F(ListenEverywhere, DoesNotWaitForever) {
  const UniqueFd first = listen_everywhere(port_);
  EXPECT_THROW(listen_everywhere(port_, milliseconds(50)), ConfigError);
}

}  // namespace
}  // namespace accelerate::launch
