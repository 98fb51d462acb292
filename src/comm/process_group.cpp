#include "comm/process_group.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "accelerate/errors.h"
#include "compat/cuda_plugin.h"

namespace accelerate::comm {
namespace {

// The address of this machine from which the machine of rank 0 is reached, so that Gloo listens on
// a network that the others can reach; "" if it cannot be told. Sends nothing.
std::string address_towards(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  std::string address;
  for (addrinfo* at = found; at != nullptr && address.empty(); at = at->ai_next) {
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    char text[NI_MAXHOST];
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      address = text;
    }
    close(fd);
  }
  freeaddrinfo(found);
  return address;
}

std::shared_ptr<::gloo::transport::Device> gloo_device(const RankEnvironment& ranks) {
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
      interface != nullptr && *interface != '\0') {
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  }
  const std::string address = address_towards(ranks.master_address, ranks.master_port);
  if (address.empty()) return c10d::ProcessGroupGloo::createDefaultDevice();
  return c10d::ProcessGroupGloo::createDeviceForHostname(address);
}

c10::intrusive_ptr<c10d::Backend> open_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const RankEnvironment& ranks,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(gloo_device(ranks));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("gloo", store), ranks.rank, ranks.world_size, options);
}

c10::intrusive_ptr<c10d::Backend> open_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            const ProcessState& state,
                                            std::chrono::milliseconds timeout) {
  if (state.local_world_size() > state.gpu_count()) {
    throw UsageError(
        {.what = std::to_string(state.local_world_size()) + " ranks on this machine share " +
                 std::to_string(state.gpu_count()) + " GPU(s), which NCCL refuses",
         .where = "process group",
         .hint = "start one rank a GPU, or set .process_group = {.cuda_backend = kGloo}"});
  }
  return compat::cuda_plugin()->make_nccl(c10::make_intrusive<c10d::PrefixStore>("nccl", store),
                                          state.rank(), state.world_size(), state.device().index(),
                                          timeout);
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> open_process_group(
    const c10::intrusive_ptr<c10d::Store>& store, const ProcessState& state,
    const ProcessGroupOptions& options) {
  using BackendType = c10d::ProcessGroup::BackendType;
  try {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, state.rank(), state.world_size());
    const auto gloo = open_gloo(store, state.ranks(), options.timeout);
    group->setBackend(c10::DeviceType::CPU, BackendType::GLOO, gloo);
    if (state.device().is_cuda()) {
      if (options.cuda_backend == CudaBackend::kGloo) {
        group->setBackend(c10::DeviceType::CUDA, BackendType::GLOO, gloo);
      } else {
        group->setBackend(c10::DeviceType::CUDA, BackendType::NCCL,
                          open_nccl(store, state, options.timeout));
      }
    }
    group->setDefaultBackend(BackendType::GLOO);
    return group;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError({.what = "the ranks met but cannot connect to each other",
                     .where = std::string("process group: ") + error.what(),
                     .hint = "set GLOO_SOCKET_IFNAME to the network that the machines share"});
  }
}

}  // namespace accelerate::comm
