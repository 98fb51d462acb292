#include "comm/groups/process_group.h"

#include <c10/util/env.h>

#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "base/host_name.h"
#include "base/nccl_variables.h"
#include "comm/groups/gpu_owners.h"
#include "comm/rendezvous/own_address.h"
#include "comm/watch/watched_backend.h"
#include "device/device_backend.h"

namespace accelerate::comm {
namespace {

std::shared_ptr<::gloo::transport::Device> gloo_device(const RankEnvironment& ranks) {
  if (const auto interface = environment_variable("GLOO_SOCKET_IFNAME");
      interface && !interface->empty()) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(*interface);
  }
  const std::string address = own_address(ranks);
  if (address.empty()) return c10d::ProcessGroupGloo::createDefaultDevice();
  return c10d::ProcessGroupGloo::createDeviceForHostname(address);
}

c10::intrusive_ptr<c10d::Backend> open_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const RankEnvironment& ranks, const GroupPlace& place,
                                            std::chrono::milliseconds timeout, Alarm& alarm,
                                            std::shared_ptr<CollectiveLog> log) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(gloo_device(ranks));
  auto gloo = c10::make_intrusive<compat::GlooBackend>(
      c10::make_intrusive<c10d::PrefixStore>("gloo", store), place.rank, place.world_size, options);
  auto abort = [backend = gloo.get()] { backend->close_connections(); };
  return watch_backend(std::move(gloo), std::move(abort), alarm, std::move(log));
}

// Before NCCL is used for the first time: it asks once.
void share_gpus(const ProcessState& state) {
  const bool one_machine = state.local_world_size() == state.world_size();
  for (const auto& [name, value] :
       shared_gpu_variables(environment_variable, state.rank(), one_machine)) {
    c10::utils::set_env(name.c_str(), value.c_str());
  }
}

// The way of the rank's own kind of device: NCCL for GPUs.
std::unique_ptr<device::Collectives> open_for_device(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const ProcessState& state,
                                                     const GroupPlace& place,
                                                     std::chrono::milliseconds timeout) {
  const device::DeviceBackend& backend = device::device_backend(state.device().type());
  if (environment_flag(kShareGpusVariable)) {
    share_gpus(state);
  } else if (const std::string id = backend.hardware_id(state.device()); !id.empty()) {
    require_gpu_of_its_own(*store, place.rank, place.world_size, id + " of " + host_name());
  }
  auto opened = backend.open_collectives({.store = store,
                                          .rank = place.rank,
                                          .world_size = place.world_size,
                                          .device = state.device(),
                                          .timeout = timeout});
  if (opened) return opened;
  throw UsageError({.what = "ranks cannot exchange tensors on " + state.device().str(),
                    .where = "process group",
                    .hint = "train with one process, or on another kind of device"});
}

[[noreturn]] void throw_not_connected(const std::string& cause) {
  throw CommError({.what = "the ranks met but cannot connect to each other",
                   .where = "process group: " + cause,
                   .hint =
                       "set GLOO_SOCKET_IFNAME, and NCCL_SOCKET_IFNAME for GPUs, to the network "
                       "that the machines share"});
}

}  // namespace

GroupBackends open_backends(const c10::intrusive_ptr<c10d::Store>& store, const ProcessState& state,
                            const ProcessGroupOptions& options, Alarm& alarm,
                            std::shared_ptr<CollectiveLog> log,
                            const std::optional<GroupPlace>& in_group) {
  const GroupPlace place =
      in_group.value_or(GroupPlace{.rank = state.rank(), .world_size = state.world_size()});
  try {
    auto host = device::collectives_of(
        open_gloo(store, state.ranks(), place, *options.timeout, alarm, std::move(log)));
    // Connections that close make those fail that still connect: nobody leaves, or ends, before all
    // are connected.
    host->barrier()->wait();
    const c10::DeviceType kind = state.device().type();
    std::unique_ptr<device::Collectives> own;
    if (kind != c10::kCPU && options.cuda_backend != CudaBackend::kGloo) {
      own = open_for_device(store, state, place, *options.timeout);
    }
    return {std::move(host), kind, std::move(own)};
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    alarm.require_silence();  // it says more than a connection that it has closed
    throw_not_connected(error.what_without_backtrace());
  } catch (const std::exception& error) {
    alarm.require_silence();
    throw_not_connected(error.what());
  }
}

c10::intrusive_ptr<c10d::ProcessGroup> GroupBackends::make_process_group(
    const c10::intrusive_ptr<c10d::Store>& store, const GroupPlace& place) const {
  using BackendType = c10d::ProcessGroup::BackendType;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, place.rank, place.world_size);
  const auto gloo = host_->c10d();
  group->setBackend(c10::DeviceType::CPU, BackendType::GLOO, gloo);
  if (kind_ != c10::kCPU && !own_) group->setBackend(kind_, BackendType::GLOO, gloo);
  if (const auto own = own_ ? own_->c10d() : nullptr) {
    group->setBackend(kind_, c10d::ProcessGroup::strToBackendType(own->getBackendName()), own);
  }
  group->setDefaultBackend(BackendType::GLOO);
  return group;
}

}  // namespace accelerate::comm
