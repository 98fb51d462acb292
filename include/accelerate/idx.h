// The IDX files of the MNIST family.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <memory>

#include "accelerate/batch.h"
#include "accelerate/export.h"

namespace accelerate {

// Reads an IDX file, plain or compressed with gzip, into a CPU tensor of the file's shape: uint8,
// int8, int16, int32, float32 or float64, in the byte order of this machine.
//
// Blocks until the file is read. The file need not be trusted: a DataError names it if it is
// unreadable, not IDX, shorter or longer than its header says, or damaged; memory use depends on
// the bytes that are really there, not on the sizes that the header claims.
ACCELERATE_EXPORT at::Tensor read_idx(const std::filesystem::path& path);

struct IdxOptions {
  // Images as float32, (pixel / 255 - mean) / stddev in single precision, instead of uint8.
  bool to_float = false;
  double mean = 0.0;
  double stddev = 1.0;
  bool add_channel = false;  // images of shape [1, height, width] instead of [height, width]
};

// Images and labels of two IDX files. Sample i is image i, uint8 unless the options say otherwise,
// and its label, an int64 tensor without dimensions. Samples and batches own their memory.
//
// A plain image file is mapped into memory and read as samples are asked for; it must not become
// shorter while the dataset lives. A compressed one, and the labels, are read here. Images turn
// into float32 as they are copied into a batch, in one pass over the pixels. Reading is safe from
// any thread; copies are cheap and share the files.
class ACCELERATE_EXPORT IdxDataset {
 public:
  // Throws DataError as read_idx() does, and for files that do not belong together: images that are
  // not uint8, labels that are not one integer each, different numbers of labels and images.
  // Throws UsageError for a stddev that is not positive, or a mean or stddev without to_float.
  IdxDataset(const std::filesystem::path& images, const std::filesystem::path& labels,
             const IdxOptions& options = {});

  size_t size() const;
  // Both throw UsageError for an index that is not below size().
  Sample get(size_t index) const;
  Sample get_batch(c10::ArrayRef<size_t> indices) const;

 private:
  struct ACCELERATE_HIDDEN State;
  std::shared_ptr<const State> state_;
};

}  // namespace accelerate
