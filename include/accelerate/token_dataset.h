// Token ids in binary files, as language models are trained on.
//
//   accelerate::TokenDataset dataset("train.bin", {.block = 1024});  // [1024] and [1024] of int64
//   auto batches = accelerate::data_loader(dataset, {.batch_size = 8, .shuffle = true});
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "accelerate/batch.h"
#include "accelerate/export.h"

namespace accelerate {

// How a token lies in the file, in little-endian byte order.
enum class StoredToken { kUint16, kUint32 };

// Of the tensors that the dataset gives. An id of 2^31 or more does not fit into kInt32.
enum class TokenDtype { kInt64, kInt32, kAsStored };

struct TokenOptions {
  int64_t block = 1024;  // tokens of a sample
  int64_t stride = 0;    // tokens from the beginning of a sample to the next; 0: block
  TokenDtype dtype = TokenDtype::kInt64;
  // For files without a header. Unset: files with the header of llm.c, 256 int32 of which the first
  // are (20240520, 1, number of tokens) before uint16 or (20240801, 7, number) before uint32.
  std::optional<StoredToken> stored{};
  uint64_t offset = 0;  // bytes before the first token of a file without a header
};

namespace detail {
class TokenBlocks;
ACCELERATE_EXPORT std::shared_ptr<const TokenBlocks> open_tokens(
    const std::vector<std::filesystem::path>& files, const TokenOptions& options,
    int64_t lookahead);
}  // namespace detail

// Blocks of tokens, each with the same block one token later: sample i of a file is
//   data = tokens[i * stride, i * stride + block), target = tokens[i * stride + 1, ... + block + 1)
// Several files follow one another in the given order; no sample crosses from one into the next,
// and a remainder at a file's end that is too short for a sample is not used.
//
// The files are mapped into memory, never read as a whole, and must not become shorter while the
// dataset lives. Samples and batches own their memory: a batch is widened from the mapping straight
// into one tensor [batch, block] for each field. Reading is safe from any thread; copies are cheap
// and share the mappings.
class ACCELERATE_EXPORT TokenDataset {
 public:
  // Throws DataError for a file that is missing, empty, shorter or longer than its header says, or
  // of another kind than the options say, and if there is no file with enough tokens for a sample.
  // Throws UsageError for invalid options.
  explicit TokenDataset(const std::vector<std::filesystem::path>& files,
                        const TokenOptions& options = {});
  template <std::convertible_to<std::filesystem::path> Path>
  explicit TokenDataset(const Path& file, const TokenOptions& options = {})
      : TokenDataset(std::vector<std::filesystem::path>{file}, options) {}

  size_t size() const;
  // Both throw UsageError for an index that is not below size().
  Sample get(size_t index) const;
  Sample get_batch(c10::ArrayRef<size_t> indices) const;

  // In all files.
  uint64_t tokens() const;

 private:
  std::shared_ptr<const detail::TokenBlocks> blocks_;
};

// Blocks of tokens without targets: sample i of a file is tokens[i * stride, i * stride + block);
// otherwise as TokenDataset.
class ACCELERATE_EXPORT UnlabelledTokenDataset {
 public:
  explicit UnlabelledTokenDataset(const std::vector<std::filesystem::path>& files,
                                  const TokenOptions& options = {});
  template <std::convertible_to<std::filesystem::path> Path>
  explicit UnlabelledTokenDataset(const Path& file, const TokenOptions& options = {})
      : UnlabelledTokenDataset(std::vector<std::filesystem::path>{file}, options) {}

  size_t size() const;
  at::Tensor get(size_t index) const;
  UnlabelledBatch get_batch(c10::ArrayRef<size_t> indices) const;
  uint64_t tokens() const;

 private:
  std::shared_ptr<const detail::TokenBlocks> blocks_;
};

}  // namespace accelerate
