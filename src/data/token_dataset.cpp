#include "accelerate/token_dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "data/row_copy.h"
#include "data/token_format.h"
#include "files/durable/mapped_file.h"

namespace accelerate {
namespace {

// Token files are little-endian and are not swapped.
static_assert(std::endian::native == std::endian::little);

void check_token_options(const TokenOptions& options) {
  if (options.block <= 0) {
    throw UsageError({.what = "TokenOptions: a block needs at least one token, got " +
                              std::to_string(options.block)});
  }
  if (options.stride < 0) {
    throw UsageError(
        {.what = "TokenOptions: the stride is negative: " + std::to_string(options.stride)});
  }
  if (options.offset != 0 && !options.stored) {
    throw UsageError({.what = "TokenOptions: offset is for files without a header",
                      .hint = "say how their tokens are stored (TokenOptions::stored)"});
  }
}

// Simple enough for the compiler to make vector code of it.
template <class Stored, class Given>
void widen(const std::byte* stored, size_t count, void* out) {
  const auto* __restrict source = reinterpret_cast<const Stored*>(stored);
  auto* __restrict target = static_cast<Given*>(out);
  for (size_t i = 0; i < count; ++i) target[i] = static_cast<Given>(source[i]);
}

template <class Stored>
void copy_tokens(const std::byte* stored, size_t count, at::ScalarType given, void* out) {
  switch (given) {
    case at::kLong:
      return widen<Stored, int64_t>(stored, count, out);
    case at::kInt:
      return widen<Stored, int32_t>(stored, count, out);
    default:
      std::memcpy(out, stored, count * sizeof(Stored));
  }
}

at::ScalarType dtype_of(TokenDtype dtype, size_t token_bytes) {
  switch (dtype) {
    case TokenDtype::kInt64:
      return at::kLong;
    case TokenDtype::kInt32:
      return at::kInt;
    case TokenDtype::kAsStored:
      break;
  }
  return token_bytes == 2 ? at::kUInt16 : at::kUInt32;
}

struct TokenFile {
  TokenFile(const std::filesystem::path& path, const TokenOptions& options)
      : file(path, "the token file"),
        layout(options.stored ? plain_token_layout(file.size(),
                                                   *options.stored == StoredToken::kUint16 ? 2 : 4,
                                                   options.offset, path)
                              : parse_token_header(file.bytes(), path)) {
    if (!options.stored || options.offset != 0 || !begins_with_token_header(file.bytes())) return;
    throw DataError(
        {.what = "the token file has a header, which would be read as tokens",
         .where = path.string(),
         .hint = "leave TokenOptions::stored out: the header says how tokens are stored"});
  }

  MappedFile file;
  TokenLayout layout;
};

}  // namespace

namespace detail {

class TokenBlocks {
 public:
  // A block needs `lookahead` tokens after it in its file.
  TokenBlocks(const std::vector<std::filesystem::path>& paths, const TokenOptions& options,
              int64_t lookahead)
      : block_(static_cast<size_t>(options.block)),
        stride_(static_cast<size_t>(options.stride > 0 ? options.stride : options.block)) {
    const size_t needed = block_ + static_cast<size_t>(lookahead);
    for (const auto& path : paths) {
      const TokenFile& file = *files_.emplace_back(std::make_unique<TokenFile>(path, options));
      if (file.layout.token_bytes != files_.front()->layout.token_bytes) {
        throw DataError(
            {.what = "the token files store tokens of different size: " + paths.front().string() +
                     " has " + std::to_string(files_.front()->layout.token_bytes) +
                     " bytes, this one " + std::to_string(file.layout.token_bytes),
             .where = path.string(),
             .hint = "use files of one tokenizer"});
      }
      const uint64_t tokens = file.layout.tokens;
      tokens_ += tokens;
      firsts_.push_back(firsts_.back() + (tokens < needed ? 0 : (tokens - needed) / stride_ + 1));
    }
    if (size() == 0) {
      throw DataError({.what = "no token file is long enough for one sample of " +
                               std::to_string(needed) + " tokens; all together hold " +
                               std::to_string(tokens_),
                       .where = paths.front().string(),
                       .hint = "make TokenOptions::block smaller"});
    }
    token_bytes_ = files_.front()->layout.token_bytes;
    type_ = dtype_of(options.dtype, token_bytes_);
  }

  size_t size() const { return firsts_.back(); }
  uint64_t tokens() const { return tokens_; }

  // Block `index`, begun `shift` tokens later.
  at::Tensor block(size_t index, size_t shift) const {
    const at::Tensor result = at::empty({static_cast<int64_t>(block_)}, type_);
    copy_blocks(index, shift, result);
    return result;
  }
  at::Tensor blocks(c10::ArrayRef<size_t> indices, size_t shift) const {
    const at::Tensor result = empty_rows(indices.size(), static_cast<int64_t>(block_), type_);
    copy_blocks(indices, shift, result);
    return result;
  }

 private:
  // Where block `index` begins in its file.
  const std::byte* beginning_of(size_t index) const {
    const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), index);
    const auto number = static_cast<size_t>(after - firsts_.begin()) - 1;
    const TokenFile& file = *files_[number];
    const size_t token = (index - firsts_[number]) * stride_;
    return file.file.data() + file.layout.offset + token * token_bytes_;
  }

  void copy_blocks(c10::ArrayRef<size_t> indices, size_t shift, const at::Tensor& result) const {
    check_indices(indices, size());
    auto* out = static_cast<std::byte*>(result.data_ptr());
    const size_t row_bytes = block_ * result.element_size();
    for (size_t k = 0; k < indices.size(); ++k) {
      if (k + 1 < indices.size()) {
        prefetch_row(beginning_of(indices[k + 1]), block_ * token_bytes_);
      }
      const std::byte* stored = beginning_of(indices[k]) + shift * token_bytes_;
      if (token_bytes_ == 2) {
        copy_tokens<uint16_t>(stored, block_, type_, out);
      } else {
        copy_tokens<uint32_t>(stored, block_, type_, out);
      }
      out += row_bytes;
    }
  }

  size_t token_bytes_ = 2;
  size_t block_;
  size_t stride_;
  at::ScalarType type_ = at::kLong;
  std::vector<std::unique_ptr<TokenFile>> files_;
  std::vector<size_t> firsts_{0};  // the first sample of each file, and their number
  uint64_t tokens_ = 0;
};

std::shared_ptr<const TokenBlocks> open_tokens(const std::vector<std::filesystem::path>& files,
                                               const TokenOptions& options, int64_t lookahead) {
  check_token_options(options);
  if (files.empty()) throw UsageError({.what = "a token dataset needs at least one file"});
  return std::make_shared<const TokenBlocks>(files, options, lookahead);
}

}  // namespace detail

TokenDataset::TokenDataset(const std::vector<std::filesystem::path>& files,
                           const TokenOptions& options)
    : blocks_(detail::open_tokens(files, options, 1)) {}

size_t TokenDataset::size() const { return blocks_->size(); }

uint64_t TokenDataset::tokens() const { return blocks_->tokens(); }

Sample TokenDataset::get(size_t index) const {
  return {.data = blocks_->block(index, 0), .target = blocks_->block(index, 1)};
}

Sample TokenDataset::get_batch(c10::ArrayRef<size_t> indices) const {
  return {.data = blocks_->blocks(indices, 0), .target = blocks_->blocks(indices, 1)};
}

UnlabelledTokenDataset::UnlabelledTokenDataset(const std::vector<std::filesystem::path>& files,
                                               const TokenOptions& options)
    : blocks_(detail::open_tokens(files, options, 0)) {}

size_t UnlabelledTokenDataset::size() const { return blocks_->size(); }

uint64_t UnlabelledTokenDataset::tokens() const { return blocks_->tokens(); }

at::Tensor UnlabelledTokenDataset::get(size_t index) const { return blocks_->block(index, 0); }

UnlabelledBatch UnlabelledTokenDataset::get_batch(c10::ArrayRef<size_t> indices) const {
  return {.data = blocks_->blocks(indices, 0)};
}

}  // namespace accelerate
