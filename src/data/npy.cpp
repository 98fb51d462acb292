#include "accelerate/npy.h"

#include <ATen/ATen.h>

#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/detail/dataset_access.h"
#include "accelerate/errors.h"
#include "data/npy_format.h"
#include "data/row_copy.h"
#include "files/durable/mapped_file.h"

namespace accelerate {
namespace {

// The files are little-endian and are not swapped.
static_assert(std::endian::native == std::endian::little);

at::ScalarType npy_scalar_type(const NpyLayout& layout) {
  const size_t bytes = layout.element_bytes;
  switch (layout.kind) {
    case NpyKind::kBool:
      return at::kBool;
    case NpyKind::kSigned:
      return bytes == 1 ? at::kChar : bytes == 2 ? at::kShort : bytes == 4 ? at::kInt : at::kLong;
    case NpyKind::kUnsigned:
      return bytes == 1   ? at::kByte
             : bytes == 2 ? at::kUInt16
             : bytes == 4 ? at::kUInt32
                          : at::kUInt64;
    case NpyKind::kFloat:
      break;
  }
  return bytes == 2 ? at::kHalf : bytes == 4 ? at::kFloat : at::kDouble;
}

}  // namespace

at::Tensor map_npy(const std::filesystem::path& path) {
  auto file =
      std::make_shared<const MappedFile>(path, "the .npy file", MappedFile::Writes::kPrivate);
  const NpyLayout layout = parse_npy(file->bytes(), path);
  if (layout.offset % layout.element_bytes != 0) {
    throw DataError(
        {.what = "the elements of the .npy file do not begin at a multiple of their size",
         .where = path.string() + ", byte " + std::to_string(layout.offset),
         .hint = "write the file again with numpy.save, or use NpyDataset"});
  }
  if (npy_scalar_type(layout) == at::kBool) {
    throw DataError({.what = "bools cannot be mapped: the file may hold bytes other than 0 and 1",
                     .where = path.string(),
                     .hint = "use NpyDataset, which reads them as 0 or 1"});
  }
  if (layout.offset == file->size()) return at::empty(layout.shape, npy_scalar_type(layout));
  return at::from_blob(
      file->data() + layout.offset, layout.shape, [file](void*) {},
      at::TensorOptions().dtype(npy_scalar_type(layout)));
}

struct NpyDataset::State {
  explicit State(const std::filesystem::path& path)
      : file(path, "the .npy file"),
        layout(parse_npy(file.bytes(), path)),
        type(npy_scalar_type(layout)),
        row_shape(layout.shape.begin() + 1, layout.shape.end()) {}

  // Writes the given rows one after the other to `out`.
  void copy(c10::ArrayRef<size_t> indices, const at::Tensor& out) const {
    auto* target = static_cast<std::byte*>(out.data_ptr());
    copy_rows(file.data() + layout.offset, layout.row_bytes, indices, target);
    if (type != at::kBool) return;
    // A bool of C++ that is neither 0 nor 1 is undefined behaviour; the file may hold any byte.
    const size_t count = indices.size() * layout.row_bytes;
    for (size_t i = 0; i < count; ++i) target[i] = std::byte{target[i] != std::byte{0}};
  }

  MappedFile file;
  NpyLayout layout;
  at::ScalarType type;
  std::vector<int64_t> row_shape;
};

NpyDataset::NpyDataset(const std::filesystem::path& path)
    : state_(std::make_shared<const State>(path)) {}

size_t NpyDataset::size() const { return static_cast<size_t>(state_->layout.shape[0]); }

at::Tensor NpyDataset::get(size_t index) const {
  detail::check_index(index, size());
  at::Tensor row = at::empty(state_->row_shape, state_->type);
  state_->copy(index, row);
  return row;
}

UnlabelledBatch NpyDataset::get_batch(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, size());
  at::Tensor rows = empty_rows(indices.size(), state_->row_shape, state_->type);
  state_->copy(indices, rows);
  return {.data = std::move(rows)};
}

}  // namespace accelerate
