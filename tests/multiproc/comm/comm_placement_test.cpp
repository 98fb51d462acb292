// What ranks find out about their machines before they connect to each other.
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "base/environment.h"
#include "comm/groups/gpu_owners.h"
#include "comm/rendezvous/own_address.h"
#include "comm/rendezvous/rendezvous.h"
#include "multiproc/group.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Whether `address` is one of this machine's.
bool can_listen_at(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), "0", &hints, &found) != 0) return false;
  const int fd = socket(found->ai_family, SOCK_STREAM, 0);
  const bool bound = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0;
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return bound;
}

TEST(OwnAddress, IsLoopbackWhereAllRanksAreOnThisMachine) {
  const RankEnvironment ranks{.world_size = 2, .local_world_size = 2};
  EXPECT_EQ(comm::own_address(ranks), "127.0.0.1");
}

TEST(OwnAddress, IsNotLoopbackWhereSomeRanksAreOnOtherMachines) {
  for (const char* master : {"127.0.0.1", "127.0.1.1", "localhost"}) {
    const RankEnvironment ranks{.world_size = 2, .local_world_size = 1, .master_address = master};
    const std::string address = comm::own_address(ranks);
    if (address.empty()) GTEST_SKIP() << "this machine has the loopback address alone";
    EXPECT_THAT(address, AllOf(Not(StartsWith("127.")), Not(StartsWith("::1"))));
    EXPECT_TRUE(can_listen_at(address)) << address;
  }
}

TEST(OwnAddress, IsUnknownWhereTheMachineOfRankZeroIs) {
  const RankEnvironment ranks{
      .world_size = 2, .local_world_size = 1, .master_address = "no-such-machine.invalid"};
  EXPECT_EQ(comm::own_address(ranks), "");
}

struct CommPlacement : Ranks {};

TEST_F(CommPlacement, RanksThatBelieveToBeOnTwoMachinesReachEachOther) {
  run(2, [](const Rank& rank) {
    const auto lookup = [&](const char* name) -> std::optional<std::string> {
      const std::string_view wanted(name);
      if (wanted == "LOCAL_RANK") return "0";
      if (wanted == "LOCAL_WORLD_SIZE") return "1";
      if (wanted == "NODE_RANK") return std::to_string(rank.rank);
      return environment_variable(name);
    };
    const ProcessState state = ProcessState::read(lookup, 0, {.cpu = true});
    ASSERT_EQ(state.local_world_size(), 1);
    Communicator communicator(state, patient());
    at::Tensor tensor = torch::ones({2});
    communicator.all_reduce(tensor);
    EXPECT_TRUE(same(tensor, torch::full({2}, 2.0)));
  });
}

TEST_F(CommPlacement, RanksWithAGpuEachMayUseNcclWhateverNumberTheySeeItUnder) {
  run(3, [](const Rank& rank) {
    const auto ranks = ProcessState::from_environment({.cpu = true}).ranks();
    const comm::Meeting meeting = comm::meet(ranks, kUnreachedTimeout);
    comm::require_gpu_of_its_own(*meeting.store, rank.rank, 3,
                                 "GPU-" + std::to_string(rank.rank) + " of node1");
    rank.reach(1);
    for (int other = 0; other < 3; ++other) rank.wait_for(other, 1);  // rank 0 holds the store
  });
}

TEST_F(CommPlacement, RanksThatShareAGpuAreNamedOnAllRanks) {
  run(3, [](const Rank& rank) {
    const auto ranks = ProcessState::from_environment({.cpu = true}).ranks();
    const comm::Meeting meeting = comm::meet(ranks, kUnreachedTimeout);
    const std::string gpu = rank.rank == 1 ? "GPU-b of node1" : "GPU-a of node1";
    EXPECT_THAT(
        group_usage_error([&] { comm::require_gpu_of_its_own(*meeting.store, rank.rank, 3, gpu); }),
        AllOf(HasSubstr("ranks 0 and 2 share one GPU (GPU-a of node1)"), HasSubstr("NCCL refuses"),
              HasSubstr("kGloo"), HasSubstr("accelerate launch --share_gpus"),
              Not(HasSubstr("GPU-b"))));
    rank.reach(1);
    for (int other = 0; other < 3; ++other) rank.wait_for(other, 1);
  });
}

}  // namespace
}  // namespace accelerate::test
