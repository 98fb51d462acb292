// Who the processes are.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>

#include "base/host_name.h"
#include "selftest/expect.h"

namespace accelerate::selftest {
namespace {

struct Place {
  int rank = 0;
  int world_size = 0;
  int local_rank = 0;
  int local_world_size = 0;
  int node_rank = 0;
  std::string host{};
  std::string process{};  // tells it from all others of its host
  std::string device{};
  int gpus = 0;
  ACCELERATE_FIELDS(rank, world_size, local_rank, local_world_size, node_rank, host, process,
                    device, gpus)
};

// Ranks in containers may have equal numbers in process tables of their own.
std::string process_name() {
  std::error_code error;
  const auto table = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  return table.string() + " " + std::to_string(getpid());
}

std::vector<Place> gather_places(Accelerator& accelerator) {
  const ProcessState& state = accelerator.state();
  const Place own{.rank = state.rank(),
                  .world_size = state.world_size(),
                  .local_rank = state.local_rank(),
                  .local_world_size = state.local_world_size(),
                  .node_rank = state.node_rank(),
                  .host = host_name(),
                  .process = process_name(),
                  .device = state.device().str(),
                  .gpus = state.gpu_count()};
  return accelerator.gather_object(own);
}

std::string counted(size_t number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

Findings check_processes(Accelerator& accelerator) {
  const std::vector<Place> places = gather_places(accelerator);
  const int world_size = accelerator.num_processes();
  expect_equal("processes that answered", static_cast<int>(places.size()), world_size);

  std::map<int, std::vector<int>> local_ranks;  // by node
  std::map<int, int> node_sizes;
  std::set<std::string> processes, hosts;
  for (int rank = 0; rank < world_size; ++rank) {
    const Place& place = places[static_cast<size_t>(rank)];
    const std::string who = " of process " + std::to_string(rank);
    expect_equal("rank" + who, place.rank, rank);
    expect_equal("world size" + who, place.world_size, world_size);
    local_ranks[place.node_rank].push_back(place.local_rank);
    const int node_size =
        node_sizes.try_emplace(place.node_rank, place.local_world_size).first->second;
    expect_equal("local world size" + who, place.local_world_size, node_size);
    expect_true("process " + std::to_string(rank) + " is another one than those before it",
                processes.insert(place.host + " " + place.process).second);
    hosts.insert(place.host);
  }
  for (auto& [node, ranks] : local_ranks) {
    std::sort(ranks.begin(), ranks.end());
    std::vector<int> expected;
    for (int rank = 0; rank < node_sizes[node]; ++rank) expected.push_back(rank);
    expect_equal("local ranks of node " + std::to_string(node), ranks, expected);
  }
  const std::string& source = accelerator.state().ranks().source;
  return {.detail = std::to_string(places.size()) +
                    (places.size() == 1 ? " process" : " processes") + " on " +
                    counted(local_ranks.size(), "node") + " (" +
                    (hosts.size() == 1 ? *hosts.begin() : counted(hosts.size(), "host name")) +
                    "), " + (source == "none" ? "no launcher" : "variables of " + source)};
}

// What moves tensors on `device` from rank to rank, for the report.
std::string way_between(c10::Device device) {
  const bool by_host = plain_options().process_group.cuda_backend == CudaBackend::kGloo;
  if (device.is_cpu() || by_host) return "gloo";
  const std::string kind = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  return kind == "cuda" ? "nccl" : "the way of " + kind;
}

Findings check_devices(Accelerator& accelerator) {
  const std::vector<Place> places = gather_places(accelerator);
  std::map<std::pair<int, std::string>, int> users;  // node and device -> rank
  for (const Place& place : places) {
    const std::string kind = place.device.substr(0, place.device.find(':'));
    const std::string first = places[0].device.substr(0, places[0].device.find(':'));
    expect_equal("kind of device of rank " + std::to_string(place.rank), kind, first);
    const auto [user, is_new] = users.try_emplace({place.node_rank, place.device}, place.rank);
    if (kind != "cpu" && place.gpus >= place.local_world_size && !is_new) {
      throw Mismatch("expected a GPU for each rank, but ranks " + std::to_string(user->second) +
                     " and " + std::to_string(place.rank) + " share " + place.device);
    }
  }
  const at::Tensor one = at::ones({4}, at::TensorOptions().device(accelerator.device()));
  expect_equal("sum of four ones on " + accelerator.device().str(), one.sum().item<double>(), 4.0);

  std::string detail = accelerator.device().str();
  if (accelerator.num_processes() == 1) {
    detail += ", one process needs no backend";
  } else {
    detail += ", " + way_between(accelerator.device()) + " between them";
  }
  return {.detail = detail + ", " +
                    counted(static_cast<size_t>(at::get_num_threads()), "CPU thread") + " each"};
}

}  // namespace

std::vector<Check> topology_checks() {
  return {{"topology", "ranks and processes", plain_options(), check_processes, true},
          {"topology", "devices", plain_options(), check_devices, true}};
}

}  // namespace accelerate::selftest
