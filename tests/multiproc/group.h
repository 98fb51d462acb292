// What the tests of collectives start from.
#pragma once

#include <accelerate/communicator.h>
#include <accelerate/errors.h>
#include <accelerate/process_state.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>

#include "support/rank_device.h"
#include "support/ranks.h"

namespace accelerate::test {

// Timeouts that no test should ever reach, yet shorter than the deadline of the fixture.
inline ProcessGroupOptions patient() {
  return {.timeout = kUnreachedTimeout,
          .rendezvous_timeout = kUnreachedTimeout,
          .cuda_backend = test_cuda_backend()};
}

// The ranks of the fixture, connected.
struct Group {
  explicit Group(const ProcessGroupOptions& options = patient()) : comm(state, options) {}

  ProcessState state = ProcessState::from_environment({.cpu = !tests_on_gpu()});
  Communicator comm;
};

// Equal in dtype, shape and every value.
inline testing::AssertionResult same(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.scalar_type() == expected.scalar_type() && actual.sizes() == expected.sizes() &&
      actual.cpu().equal(expected.cpu())) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << "got " << actual.toString() << actual.sizes() << "\n"
         << actual << "\nexpected " << expected.toString() << expected.sizes() << "\n"
         << expected;
}

// The text of the UsageError that `action` throws; "" and a failure if it throws none. It must know
// its rank, unless no group has a part in it.
template <typename Action>
std::string group_usage_error(Action action, bool of_a_group = true) {
  try {
    action();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.rank().has_value(), of_a_group) << error.what();
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected a UsageError, got: " << error.what();
    return {};
  }
  ADD_FAILURE() << "expected a UsageError, nothing was thrown";
  return {};
}

}  // namespace accelerate::test
