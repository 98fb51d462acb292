// The door to torch_xla: what the library asks of it, all found at run time. Nothing of XLA or of
// Python is linked or loaded before open_xla().
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <string>

namespace accelerate::compat {

// Opens torch_xla in this process and its client, which PJRT_DEVICE names: CPU or TPU, TPU where it
// is not set. Later calls do nothing. Throws ConfigError where that is not possible; nothing of it
// stays then, unless a device could not be opened. Any thread.
void open_xla();
bool xla_is_open();

// --- Once it is open ---

// Devices that this process can see: 1 where one program drives all of them.
int xla_device_count();
// How many devices one program drives: batches may be cut over them. 1 where it drives one.
int xla_devices_in_program();

// Compiles, unless it knows it, and starts what tensors of `device` wait for, which is all that was
// done to them since the last cut. `wait`: until it is done.
void cut_xla_graph(c10::Device device, bool wait);

// Where dropout and other random operations of a device go on.
void set_xla_seed(c10::Device device, uint64_t seed);
uint64_t xla_seed(c10::Device device);

// What one program over several devices does with a tensor: cuts dimension 0 into as many pieces as
// it drives devices, where that goes up. Others are on all devices.
void cut_rows_over_xla_devices(const at::Tensor& tensor);

struct XlaCounts {
  int64_t compilations = 0;                      // since the process began
  std::map<std::string, int64_t> on_the_host{};  // operations that XLA left to the CPU, by name
};
XlaCounts xla_counts();
// Of these alone, for every step.
int64_t xla_compilations();

}  // namespace accelerate::compat
