// Whether all ranks have the same data.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "accelerate/communicator.h"
#include "accelerate/detail/sample_digest.h"

namespace accelerate {

// Reads a few of `size` samples and throws UsageError on all ranks if they differ between the
// ranks. libtorch's generators, of the CPU and of the GPUs where `device` is one, are afterwards as
// before. Data that are not the same from one reading to the next, or cannot be read, are left
// alone; rank 0 then says so at level info. Collective: all ranks, same `size`.
void require_same_data(const detail::SampleDigest& digest, int64_t size, c10::Device device,
                       Communicator& ranks);

}  // namespace accelerate
