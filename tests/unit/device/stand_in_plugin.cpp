// Stands for libaccelerate_cuda.so: two GPUs, and a version that the test sets.
#include "accelerate/export.h"
#include "device/cuda_plugin_version.h"

extern "C" {

ACCELERATE_EXPORT accelerate::device::CudaPluginVersion stand_in_version;

ACCELERATE_EXPORT const accelerate::device::CudaPluginVersion* accelerate_cuda_plugin_version() {
  return &stand_in_version;
}

// Of the table only the first function, the number of GPUs, is there to be called.
ACCELERATE_EXPORT const void* accelerate_cuda_plugin() {
  using Count = int (*)();
  static const Count kTable[14] = {[] { return 2; }};
  return kTable;
}
}
