// Arrays saved by NumPy (.npy), mapped into memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <memory>

#include "accelerate/batch.h"
#include "accelerate/export.h"

namespace accelerate {

// The array of a .npy file as a CPU tensor whose memory is the file, mapped: nothing is read before
// it is touched. Writing to the tensor changes it in this process alone, never the file. The file
// must not become shorter while the tensor, or one that shares its memory, lives.
//   accelerate::TensorDataset dataset(accelerate::map_npy("x.npy"), accelerate::map_npy("y.npy"));
//
// Format versions 1 to 3, C order, little-endian: bool, int8 to int64, uint8 to uint64, float16 to
// float64. Everything else is refused with a DataError that names the file and the byte, as are
// files that are damaged or shorter or longer than their header says.
ACCELERATE_EXPORT at::Tensor map_npy(const std::filesystem::path& path);

// Sample i is row i of the array in a .npy file. Samples and batches are copies that own their
// memory; the file is mapped as by map_npy(), never read as a whole. Reading is safe from any
// thread; copies are cheap and share the mapping.
class ACCELERATE_EXPORT NpyDataset {
 public:
  // Throws DataError as map_npy() does.
  explicit NpyDataset(const std::filesystem::path& path);

  size_t size() const;
  // Both throw UsageError for an index that is not below size().
  at::Tensor get(size_t index) const;
  UnlabelledBatch get_batch(c10::ArrayRef<size_t> indices) const;

 private:
  struct ACCELERATE_HIDDEN State;
  std::shared_ptr<const State> state_;
};

}  // namespace accelerate
