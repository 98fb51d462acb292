#include "accelerate/nested.h"

#include <ATen/ATen.h>

#include <sstream>

#include "accelerate/errors.h"

namespace accelerate {

std::string NestedPath::str() const {
  std::string path = parent_ == nullptr ? std::string() : parent_->str();
  if (step_.index >= 0) {
    path += '[' + std::to_string(step_.index) + ']';
  } else if (!step_.name.empty()) {
    if (!path.empty()) path += '.';
    path += step_.name;
  }
  return path;
}

std::string place_name(const std::string& path) {
  return path.empty() ? "the value" : '`' + path + '`';
}

namespace detail {
namespace {

std::string name_of(const NestedPath& path) { return place_name(path.str()); }

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes() << " on " << tensor.device();
  return text.str();
}

std::string text_of(const NestedShape& shape) {
  if (shape.keys.empty()) return std::to_string(shape.size) + " entries";
  std::string text = "the keys";
  for (const std::string& key : shape.keys) text += " `" + key + '`';
  return text;
}

[[noreturn]] void refuse_parts(const NestedPath& path, const std::string& first, size_t part,
                               const std::string& other) {
  throw DataError({.what = "part " + std::to_string(part) + " cannot be joined to part 0: " +
                           name_of(path) + " is " + other + ", in part 0 it is " + first,
                   .where = "concatenate()"});
}

bool can_join(const at::Tensor& first, const at::Tensor& other) {
  return first.defined() && other.defined() && first.dim() > 0 && other.dim() == first.dim() &&
         other.sizes().slice(1) == first.sizes().slice(1) &&
         other.scalar_type() == first.scalar_type() && other.device() == first.device();
}

}  // namespace

RowRange::RowRange(int64_t first_row, int64_t last_row, size_t size) {
  const auto rows = static_cast<int64_t>(size);
  const auto clamp = [&](int64_t row) {
    return std::clamp(row < 0 ? row + rows : row, int64_t{0}, rows);
  };
  first = clamp(first_row);
  last = std::max(first, clamp(last_row));
}

at::Tensor slice_tensor(const NestedPath& path, const at::Tensor& tensor, int64_t first,
                        int64_t last) {
  if (!tensor.defined()) return tensor;
  if (tensor.dim() == 0) refuse_to_cut(path);
  const RowRange range(first, last, static_cast<size_t>(tensor.size(0)));
  return tensor.narrow(0, range.first, range.last - range.first);
}

void refuse_to_cut(const NestedPath& path) {
  throw DataError(
      {.what = name_of(path) + " has no rows and cannot be cut into rows",
       .where = "slice_rows()",
       .hint = "give slice_fn_for_dispatch, or make it a tensor with one row per sample"});
}

at::Tensor join_tensors(const NestedPath& path, const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  bool none = !first.defined();
  if (!none && first.dim() == 0) {
    throw DataError({.what = name_of(path) + " is a tensor without dimensions and has no rows",
                     .where = "concatenate()"});
  }
  for (size_t part = 1; part < parts.size(); ++part) {
    if (none ? parts[part].defined() : !can_join(first, parts[part])) {
      refuse_parts(path, text_of(first), part, text_of(parts[part]));
    }
  }
  return none ? at::Tensor() : at::cat(parts, 0);
}

void refuse_to_join(const NestedPath& path, size_t part) {
  throw DataError({.what = "part " + std::to_string(part) + " cannot be joined to part 0: " +
                           name_of(path) + " is the same for all rows, but differs between them",
                   .where = "concatenate()",
                   .hint = "make it a tensor or a std::vector with one entry per row"});
}

void check_same_shape(const NestedPath& path, const NestedShape& first, size_t part,
                      const NestedShape& other) {
  if (first != other) refuse_parts(path, text_of(first), part, text_of(other));
}

void check_parts(size_t parts) {
  if (parts == 0) {
    throw DataError(
        {.what = "there is nothing to join: no part was given", .where = "concatenate()"});
  }
}

at::Tensor to_device(const at::Tensor& tensor, c10::Device device, bool non_blocking) {
  if (!tensor.defined()) return tensor;
  return tensor.to(tensor.options().device(device), non_blocking);
}

}  // namespace detail
}  // namespace accelerate
