// What a group exchanges tensors through, without the Communicator above it.
#include <c10/util/Exception.h>

#include <memory>
#include <utility>
#include <vector>

#include "comm/groups/process_group.h"
#include "comm/rendezvous/rendezvous.h"
#include "multiproc/group.h"

namespace accelerate::test {
namespace {

struct Backends : Ranks {};

// The ways of a device that libtorch's c10d does not know: they do nothing.
class IdleCollectives final : public device::Collectives {
 public:
  std::string name() const override { return "idle"; }
  device::CollectiveWorkPtr broadcast(at::Tensor, int) override { return begun(); }
  device::CollectiveWorkPtr all_reduce(at::Tensor, device::Combine) override { return begun(); }
  device::CollectiveWorkPtr all_gather(at::Tensor, at::Tensor) override { return begun(); }
  device::CollectiveWorkPtr reduce_scatter(at::Tensor, at::Tensor, device::Combine) override {
    return begun();
  }
  device::CollectiveWorkPtr scatter(at::Tensor, std::vector<at::Tensor>, int) override {
    return begun();
  }
  device::CollectiveWorkPtr barrier() override { return begun(); }

 private:
  class Done final : public device::CollectiveWork {
   public:
    void wait() override {}
    bool is_done() const override { return true; }
  };
  static device::CollectiveWorkPtr begun() { return std::make_unique<Done>(); }
};

TEST_F(Backends, GlooServesTheHostAndDevicesHaveTheirOwn) {
  run(2, [](const Rank& rank) {
    const ProcessState state = ProcessState::from_environment({.cpu = true});
    const comm::Meeting meeting = comm::meet(state.ranks(), kUnreachedTimeout);
    comm::Alarm alarm;
    const comm::GroupBackends opened =
        comm::open_backends(meeting.store, state, {.timeout = kUnreachedTimeout}, alarm,
                            std::make_shared<comm::CollectiveLog>(std::make_shared<EventStream>()));
    device::Collectives& gloo = opened.of(c10::kCPU);
    EXPECT_EQ(&gloo, &opened.host());
    EXPECT_EQ(gloo.name(), "gloo");
    const at::Tensor own = torch::full({2}, rank.rank + 1);
    const at::Tensor sum = own.clone();
    const at::Tensor greatest = own.clone();
    const at::Tensor least = own.clone();
    const at::Tensor all = torch::empty({4}, at::kLong);
    const at::Tensor part = torch::empty({1}, at::kLong);
    const device::CollectiveWorkPtr summing = gloo.all_reduce(sum, device::Combine::kSum);
    gloo.all_reduce(greatest, device::Combine::kMax)->wait();
    gloo.all_reduce(least, device::Combine::kMin)->wait();
    gloo.all_gather(all, own)->wait();
    gloo.reduce_scatter(part, own, device::Combine::kSum)->wait();
    summing->wait();
    EXPECT_TRUE(summing->is_done());
    EXPECT_TRUE(same(sum, torch::full({2}, 3)));
    EXPECT_TRUE(same(greatest, torch::full({2}, 2)));
    EXPECT_TRUE(same(least, torch::full({2}, 1)));
    EXPECT_TRUE(same(all, torch::tensor({1, 1, 2, 2}, at::kLong)));
    EXPECT_TRUE(same(part, torch::full({1}, 3)));
    gloo.barrier()->wait();

    const comm::GroupPlace place{.rank = rank.rank, .world_size = 2};
    const comm::GroupBackends both(device::collectives_of(gloo.c10d()), c10::kPrivateUse1,
                                   std::make_unique<IdleCollectives>());
    EXPECT_EQ(both.of(c10::kCPU).name(), "gloo");
    EXPECT_EQ(both.of(c10::kPrivateUse1).name(), "idle");
    EXPECT_EQ(both.of(c10::kPrivateUse1).c10d(), nullptr);
    const auto group = both.make_process_group(meeting.store, place);
    EXPECT_EQ(group->getBackend(c10::kCPU)->getBackendName(), "gloo");
    EXPECT_THROW((void)group->getBackend(c10::kPrivateUse1), c10::Error);
  });
}

}  // namespace
}  // namespace accelerate::test
