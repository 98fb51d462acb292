// The place of this process among the others: rank, node, device. Read once from the environment.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/export.h"

namespace accelerate {

enum class DistributedType {
  kNo,        // one process
  kMultiCpu,  // several processes, tensors on CPUs
  kMultiGpu,  // several processes, tensors on GPUs or on another kind of accelerator
  kXla,       // XLA devices, whatever their number
};

// "NO", "MULTI_CPU", "MULTI_GPU", "XLA": the reference's spelling.
ACCELERATE_EXPORT std::string_view to_string(DistributedType type);

// Looks a variable up; std::nullopt where it is not set. Replaced by a table in tests.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

// The place of a process in its job, as a launcher describes it by environment variables.
//
// Read from the first of these families that is set: torchrun's names (RANK, WORLD_SIZE, ...),
// Open MPI (OMPI_COMM_WORLD_*), PMI (PMI_*), MVAPICH (MV2_COMM_WORLD_*), SLURM step
// (SLURM_PROCID, ...). None of them: one process. In a SLURM step, PMI's rank and size without
// PMI's local rank are srun's (--mpi=pmi2): then SLURM's names count, and must agree with PMI's.
//
// Rank 0 listens at MASTER_ADDR and MASTER_PORT. torchrun sets both. Without MASTER_ADDR it is this
// machine if all ranks are on it, and the first node of a SLURM step. Without MASTER_PORT the port
// is drawn, from 20000 to 29999, from what names the job: SLURM_JOB_ID and SLURM_STEP_ID, or
// PMIX_NAMESPACE under Open MPI's mpirun; it is 29500 where nothing names it.
struct ACCELERATE_EXPORT RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 29500;
  // Identifies this job, and this attempt of it, among others that might use the same address;
  // the same on all ranks, empty where the launcher does not say.
  std::string job{};
  // How often the launcher has restarted this job after a failure, and how often it may.
  // torchrun's names TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_MAX_RESTARTS.
  int restart_count = 0;
  int max_restarts = 0;
  // True where another process (torchrun's agent) hosts the store at that address and port.
  bool store_is_hosted = false;
  // The family that was read: "torchrun", "Open MPI", "PMI", "MVAPICH", "SLURM" or "none".
  std::string source = "none";

  // Throws ConfigError that names the variables if the description is incomplete, out of range,
  // or where two families contradict each other.
  static RankEnvironment read(const EnvironmentLookup& lookup);
};

struct ProcessStateOptions {
  bool cpu = false;      // stay on the CPU even if there is a GPU
  std::string device{};  // see AcceleratorOptions::device
};

// Devices of one kind that a process can see.
struct VisibleDevices {
  c10::DeviceType type{};
  int count = 0;
};

// Rank and device of this process. A value: holds no connection, costs nothing to copy.
class ACCELERATE_EXPORT ProcessState {
 public:
  // Reads the real environment. Asks for GPUs, which loads libaccelerate_cuda.so where a driver
  // is present; must come before the program's own first use of CUDA. Opens torch_xla where an XLA
  // device is asked for. Throws ConfigError if one of them belongs to another build or cannot be
  // used.
  static ProcessState from_environment(const ProcessStateOptions& options = {});

  // The same from a table of variables and what devices there are beside the CPU, the preferred
  // kind first: the rule alone, for tests.
  static ProcessState read(const EnvironmentLookup& lookup,
                           const std::vector<VisibleDevices>& devices,
                           const ProcessStateOptions& options);
  // With a number of GPUs and no other devices.
  static ProcessState read(const EnvironmentLookup& lookup, int gpu_count,
                           const ProcessStateOptions& options);

  int rank() const { return ranks_.rank; }
  int world_size() const { return ranks_.world_size; }
  int local_rank() const { return ranks_.local_rank; }
  int local_world_size() const { return ranks_.local_world_size; }
  int node_rank() const { return ranks_.node_rank; }
  // Above 0 when the launcher has restarted the job after a failure: the moment to resume from
  // the newest checkpoint, load_state() without an argument.
  int restart_count() const { return ranks_.restart_count; }
  const RankEnvironment& ranks() const { return ranks_; }

  bool is_main_process() const { return ranks_.rank == 0; }
  bool is_local_main_process() const { return ranks_.local_rank == 0; }
  bool is_last_process() const { return ranks_.rank == ranks_.world_size - 1; }

  // cuda:(local_rank modulo number of GPUs), the same for another kind of device, or cpu.
  c10::Device device() const { return device_; }
  // Devices of that kind that this process can see; on the CPU those that it does not use.
  int gpu_count() const { return gpu_count_; }
  DistributedType distributed_type() const;

 private:
  RankEnvironment ranks_;
  c10::Device device_{c10::kCPU};
  int gpu_count_ = 0;
};

}  // namespace accelerate
