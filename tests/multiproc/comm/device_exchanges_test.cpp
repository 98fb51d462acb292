// Exchanges that run on after their calls have returned, as those of NCCL do: how a group waits for
// them at its end, and what becomes of them when a rank is lost. No GPU: a kind of device whose
// exchanges the test lets begin and end.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/environment.h"
#include "comm/groups/process_group.h"
#include "device/device_backend.h"
#include "device/exchange_control.h"
#include "multiproc/group.h"
#include "support/error_of.h"

namespace accelerate::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

// What the device of this process does, and what was asked of it.
struct QueueState {
  std::atomic<int64_t> begun = 0;
  std::atomic<int64_t> ended = 0;
  std::atomic<bool> failing = false;
  std::atomic<bool> aborted = false;
  std::atomic<bool> closed = false;
  device::ExchangeControl::OnBegin on_begin;

  // An exchange that ends when the test says so.
  void begin(std::string_view name, int64_t bytes) {
    const int64_t number = ++begun;
    if (on_begin) on_begin({.number = number, .name = name, .bytes = bytes});
  }
  // As a host does that waits for the device.
  void wait() const {
    while (ended < begun && !aborted) std::this_thread::sleep_for(milliseconds(2));
  }
};

class QueueControl final : public device::ExchangeControl {
 public:
  explicit QueueControl(std::shared_ptr<QueueState> state) : state_(std::move(state)) {}

  Progress progress() const noexcept override {
    return {.begun = state_->begun, .ended = state_->aborted ? state_->begun : state_->ended};
  }
  void listen(device::ExchangeControl::OnBegin on_begin) override {
    state_->on_begin = std::move(on_begin);
  }
  std::string trouble() const noexcept override { return state_->failing ? "timed out" : ""; }
  void abort() noexcept override { state_->aborted = true; }
  void end(milliseconds) noexcept override { state_->closed = true; }

 private:
  const std::shared_ptr<QueueState> state_;
};

// Only opened and closed: the tests exchange tensors of the host.
class QueueCollectives final : public device::Collectives {
 public:
  explicit QueueCollectives(std::shared_ptr<QueueState> state)
      : control_(std::make_shared<QueueControl>(std::move(state))) {}
  ~QueueCollectives() override { control_->end(milliseconds(0)); }

  std::string name() const override { return "queue"; }
  device::CollectiveWorkPtr broadcast(at::Tensor, int) override { return nullptr; }
  device::CollectiveWorkPtr all_reduce(at::Tensor, device::Combine) override { return nullptr; }
  device::CollectiveWorkPtr all_gather(at::Tensor, at::Tensor) override { return nullptr; }
  device::CollectiveWorkPtr reduce_scatter(at::Tensor, at::Tensor, device::Combine) override {
    return nullptr;
  }
  device::CollectiveWorkPtr scatter(at::Tensor, std::vector<at::Tensor>, int) override {
    return nullptr;
  }
  device::CollectiveWorkPtr barrier() override { return nullptr; }
  std::shared_ptr<device::ExchangeControl> control() const override { return control_; }

 private:
  const std::shared_ptr<QueueControl> control_;
};

class QueueDevices final : public device::DeviceBackend {
 public:
  explicit QueueDevices(std::shared_ptr<QueueState> state)
      : DeviceBackend(c10::DeviceType::IPU), state_(std::move(state)) {}
  int count() const override { return 1; }
  std::unique_ptr<device::Collectives> open_collectives(
      const device::CollectivesRequest&) const override {
    return std::make_unique<QueueCollectives>(state_);
  }

 private:
  const std::shared_ptr<QueueState> state_;
};

// The ranks of the fixture, each with such a device.
struct QueueGroup {
  explicit QueueGroup(const ProcessGroupOptions& options = {
                          .timeout = kUnreachedTimeout, .rendezvous_timeout = kUnreachedTimeout}) {
    device::add_device_backend(std::make_unique<QueueDevices>(queue));
    const ProcessState state =
        ProcessState::read(environment_variable, {{.type = c10::DeviceType::IPU, .count = 1}}, {});
    comm = std::make_unique<Communicator>(state, options);
  }

  std::shared_ptr<QueueState> queue = std::make_shared<QueueState>();
  std::unique_ptr<Communicator> comm;
};

struct DeviceExchanges : Ranks {};

TEST_F(DeviceExchanges, AGroupWaitsAtItsEndForWhatTheDeviceStillWorksOn) {
  run(2, [](const Rank&) {
    QueueGroup group;
    group.queue->begun = 3;  // not one of them has ended
    std::atomic<bool> has_ended = false;
    std::thread device([&] {
      for (int i = 0; i < 3; ++i) {
        std::this_thread::sleep_for(milliseconds(150));
        if (i == 2) has_ended = true;
        ++group.queue->ended;
      }
    });
    group.comm->barrier();
    group.comm.reset();
    EXPECT_TRUE(has_ended);
    EXPECT_FALSE(group.queue->aborted);
    EXPECT_TRUE(group.queue->closed);
    device.join();
  });
}

TEST_F(DeviceExchanges, ARankThatIsDoneWaitsForTheOthersToComeToTheirEnd) {
  run(2, [](const Rank& rank) {
    constexpr milliseconds kBehind{600};
    QueueGroup group;
    group.queue->begun = group.queue->ended = 1;
    group.comm->barrier();
    const auto before = std::chrono::steady_clock::now();
    if (rank.rank == 0) std::this_thread::sleep_for(kBehind);
    group.comm.reset();
    EXPECT_GE(std::chrono::steady_clock::now() - before, kBehind);
  });
}

TEST_F(DeviceExchanges, ButNotForOneThatDoesNotCome) {
  run(3, [](const Rank& rank) {
    QueueGroup group;
    group.queue->begun = group.queue->ended = 1;
    group.comm->barrier();
    if (rank.rank == 1) {
      rank.wait_for(0, 1);
      rank.wait_for(2, 1);
    }
    group.comm.reset();
    EXPECT_FALSE(group.queue->aborted);
    rank.reach(1);
  });
}

TEST_F(DeviceExchanges, AnExceptionOnItsWayDoesNotWaitForThemForLong) {
  run(2, [](const Rank& rank) {
    QueueGroup group;
    group.comm->barrier();
    if (rank.rank == 1) group.queue->begun = 1;
    try {
      const std::unique_ptr<Communicator> own = std::move(group.comm);
      throw std::runtime_error("of the program");
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(group.queue->aborted, rank.rank == 1);
    EXPECT_TRUE(group.queue->closed);
    rank.reach(1);
    rank.wait_for(1 - rank.rank, 1);
  });
}

TEST_F(DeviceExchanges, ALostRankWakesTheHostThatWaitsForTheDeviceAndEveryLaterCallThrows) {
  spawn(3, [](const Rank& rank) {
    QueueGroup group;
    group.comm->barrier();
    // Several steps are queued; the device hangs in the first, and no collective runs on the host.
    group.queue->begun = 5;
    group.queue->ended = 2;
    rank.reach(1);
    if (rank.rank == 1) std::this_thread::sleep_for(kUnreachedTimeout);
    group.queue->wait();
    EXPECT_TRUE(group.queue->aborted);
    at::Tensor tensor = torch::ones({2});
    const std::string first = error_text<CommError>([&] { group.comm->all_reduce(tensor); });
    EXPECT_THAT(first, HasSubstr("rank 1"));
    EXPECT_THAT(first, HasSubstr("its process has ended"));
    EXPECT_THAT(error_text<CommError>([&] { group.comm->barrier(); }), HasSubstr("rank 1"));
    EXPECT_THAT(error_text<CommError>([&] { comm::require_usable(*group.comm); }),
                HasSubstr("rank 1"));
    bool has_run = false;
    EXPECT_THAT(
        error_text<CommError>([&] { group.comm->guard("backward", [&] { has_run = true; }); }),
        HasSubstr("rank 1"));
    EXPECT_FALSE(has_run);
  });
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(wait_for_stage(rank, 1));
  kill_rank(1, SIGKILL);
  EXPECT_EQ(exit_code_of(0), kExitPassed);
  EXPECT_EQ(exit_code_of(2), kExitPassed);
}

// Whoever waits for the device cannot be thrown at: the next call says it.
void wait_and_expect_unlike(QueueGroup& group) {
  group.queue->wait();
  EXPECT_TRUE(group.queue->aborted);
  EXPECT_THAT(error_text<UsageError>([&] { group.comm->barrier(); }),
              AllOf(HasSubstr("the ranks wait for each other in different operations: "),
                    HasSubstr(" in all_gather Float[3]"), HasSubstr("rank 1 in backward")));
}

TEST_F(DeviceExchanges, RanksThatWaitOnTheDeviceAndOnTheHostAreToldLongBeforeTheTimeout) {
  run(3, [](const Rank& rank) {
    QueueGroup group;
    group.comm->barrier();
    if (rank.rank == 1) {
      group.comm->guard("backward", [&] { group.queue->begin("allreduce", 64); });
      wait_and_expect_unlike(group);
    } else {
      EXPECT_THAT(error_text<UsageError>([&] { (void)group.comm->all_gather(torch::ones({3})); }),
                  AllOf(HasSubstr("in all_gather Float[3]"), HasSubstr("rank 1 in backward")));
    }
    rank.reach(1);
    for (int other = 0; other < 3; ++other) rank.wait_for(other, 1);
  });
}

TEST_F(DeviceExchanges, RanksInDifferentExchangesOfTheDeviceAreToldLongBeforeTheTimeout) {
  run(2, [](const Rank& rank) {
    QueueGroup group;
    group.comm->barrier();
    group.comm->guard("backward", [&] { group.queue->begin("allreduce", 64 + rank.rank); });
    group.queue->wait();
    EXPECT_THAT(error_text<UsageError>([&] { group.comm->barrier(); }),
                HasSubstr("with tensors of other sizes or another root"));
    rank.reach(1);
    rank.wait_for(1 - rank.rank, 1);
  });
}

// The host of rank 0 has queued the exchange of the device before it came to the barrier.
TEST_F(DeviceExchanges, OneThatIsAheadIsNotTakenForUnlikeAndSaysWhatItWaitsFor) {
  spawn(2, [](const Rank& rank) {
    QueueGroup group;
    group.comm->barrier();
    if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(12));
    group.comm->guard("backward", [&] { group.queue->begin("allreduce", 64); });
    if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(12));
    group.comm->barrier();
    group.queue->ended = 1;
    group.comm->barrier();
  });
  wait_all();
  EXPECT_THAT(output_of(0), testing::ContainsRegex("waiting for other ranks for 1[0-9] s: "));
  EXPECT_THAT(output_of(1),
              testing::ContainsRegex("waiting for other ranks for 1[0-9] s: backward"));
}

TEST_F(DeviceExchanges, ThatFailWhileAProgramEndsAreLogged) {
  spawn(2, [](const Rank& rank) {
    QueueGroup group;
    group.comm->barrier();
    if (rank.rank == 1) return;
    group.comm->guard("backward", [&] { group.queue->begin("allreduce", 64); });
  });
  wait_all();
  EXPECT_THAT(output_of(0), AllOf(HasSubstr("exchanges on the device failed while nobody waited"),
                                  HasSubstr(" backward: rank 1 did not arrive")));
  EXPECT_THAT(output_of(1), testing::Not(HasSubstr("exchanges on the device failed")));
}

TEST_F(DeviceExchanges, WhatTheLibraryBelowReportsEndsTheGroupOnAllRanks) {
  run(2, [](const Rank& rank) {
    QueueGroup group;
    group.comm->barrier();
    group.queue->begun = 1;
    if (rank.rank == 0) group.queue->failing = true;
    group.queue->wait();
    EXPECT_TRUE(group.queue->aborted);
    EXPECT_THAT(error_text<CommError>([&] { group.comm->barrier(); }), HasSubstr("failed"));
    rank.reach(1);
    rank.wait_for(1 - rank.rank, 1);
  });
}

}  // namespace
}  // namespace accelerate::test
