// Two machines, played by two processes: each starts the workers of its node.
#include <accelerate/accelerate.h>
#include <accelerate/notebook.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "notebook/processes.h"
#include "notebook/shared_numbers.h"
#include "support/reserved_port.h"

namespace accelerate::test {
namespace {

TEST(NotebookNodes, TheWorkersOfAllNodesMeet) {
  const ReservedPort port;
  SharedNumbers sums;
  std::vector<pid_t> nodes;
  for (int node = 0; node < 2; ++node) {
    nodes.push_back(fork());
    ASSERT_GE(nodes.back(), 0);
    if (nodes.back() > 0) continue;
    const auto places = notebook_launcher(
        [] {
          Accelerator accelerator({.cpu = true});
          const int all = accelerator.reduce(1 << (4 * accelerator.process_index()));
          return all * 16 + accelerator.local_process_index();
        },
        {.num_processes = 2,
         .cpu = true,
         .use_port = port.number(),
         .num_nodes = 2,
         .node_rank = node});
    sums[static_cast<size_t>(2 * node)] = places.at(0);
    sums[static_cast<size_t>(2 * node + 1)] = places.at(1);
    _exit(0);
  }
  int left = 2;
  EXPECT_TRUE(comes_true([&] {
    for (pid_t& node : nodes) {
      if (node > 0 && waitpid(node, nullptr, WNOHANG) == node) node = (--left, 0);
    }
    return left == 0;
  }));
  for (const pid_t node : nodes) {
    if (node > 0) kill(node, SIGKILL);
  }
  EXPECT_EQ(sums[0], 0x11110);
  EXPECT_EQ(sums[1], 0x11111);
  EXPECT_EQ(sums[2], 0x11110);
  EXPECT_EQ(sums[3], 0x11111);
}

}  // namespace
}  // namespace accelerate::test
