// From the bytes of an archive to values of libtorch.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "accelerate/errors.h"
#include "accelerate/torch_archive.h"
#include "checkpoint/archive/bool_bytes.h"
#include "checkpoint/archive/torch_archive_format.h"
#include "files/pickle/pickle_archive.h"
#include "files/pickle/pickle_text.h"
#include "files/safetensors/mapped_checkpoint.h"

namespace accelerate {
namespace {

using files::PickleBox;
using files::PickleIndex;

constexpr uintptr_t kLargestElement = 16;  // bytes, and its alignment: complex128

// The sum of what all values hold: what the tree of values may hold too, several times over, as
// parts of it that the pickle shares are copied.
size_t payload_bytes(const files::PickleValue& value) {
  size_t bytes = sizeof(TorchValue);
  if (const auto* text = std::get_if<files::PickleText>(&value)) bytes += text->text.size();
  if (const auto* data = std::get_if<files::PickleBytes>(&value)) bytes += data->bytes.size();
  if (const auto* big = std::get_if<files::PickleBigInteger>(&value)) bytes += big->digits.size();
  if (const auto* size = std::get_if<files::PickleSize>(&value)) bytes += 8 * size->sizes.size();
  return bytes;
}

class ValueBuilder {
 public:
  ValueBuilder(const files::PickleArchive& archive, std::shared_ptr<const MappedFile> file)
      : archive_(archive), file_(std::move(file)) {
    constexpr size_t kCopies = 16;
    for (const auto& value : archive_.document().values) budget_ += kCopies * payload_bytes(value);
  }

  TorchValue build(PickleIndex index) {
    const files::PickleValue& value = archive_.document().at(index);
    const size_t bytes = payload_bytes(value);
    if (bytes > budget_) refuse("it repeats the same values too often");
    budget_ -= bytes;
    return std::visit([&](const auto& held) { return convert(held, index); }, value);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw CheckpointError({.what = "the pickle of the archive cannot be read: " + what,
                           .where = file_->path().string(),
                           .hint = "the file was not written by torch.save of plain values"});
  }

  // Values that are what they hold.
  template <class T>
  TorchValue convert(const T& value, PickleIndex /*index*/) const {
    if constexpr (std::is_same_v<T, std::monostate>) {
      return {};
    } else {
      return value;
    }
  }
  TorchValue convert(const files::PickleText& value, PickleIndex /*index*/) { return value.text; }
  TorchValue convert(const files::PickleBytes& value, PickleIndex /*index*/) {
    return TorchBytes{.bytes = value.bytes};
  }
  TorchValue convert(const files::PickleBigInteger& value, PickleIndex /*index*/) {
    return TorchBigInteger{.digits = value.digits};
  }
  TorchValue convert(const files::PickleSize& value, PickleIndex /*index*/) {
    return TorchSize{.sizes = value.sizes};
  }
  TorchValue convert(const files::PickleDtype& value, PickleIndex /*index*/) {
    return torch_dtype(value.name);
  }
  TorchValue convert(const files::PickleDevice& value, PickleIndex /*index*/) {
    try {
      return c10::Device(value.name);
    } catch (const c10::Error&) {
      refuse("there is no device '" + files::shown(value.name) + "'");
    }
  }

  TorchValue convert(const files::PickleSequence& sequence, PickleIndex /*index*/) {
    const Deeper deeper(*this);
    std::vector<TorchValue> items;
    items.reserve(sequence.items.size());
    for (const PickleIndex item : sequence.items) items.push_back(build(item));
    switch (sequence.kind) {
      case files::PickleSequence::Kind::kTuple:
        return TorchTuple{.items = std::move(items)};
      case files::PickleSequence::Kind::kSet:
        return TorchSet{.items = std::move(items)};
      case files::PickleSequence::Kind::kList:
        break;
    }
    return items;
  }

  TorchValue convert(const files::PickleDict& pickled, PickleIndex /*index*/) {
    const Deeper deeper(*this);
    TorchDict dict(pickled.is_ordered ? TorchDict::Kind::kOrderedDict : TorchDict::Kind::kDict);
    for (const auto& [key, value] : pickled.entries) {
      TorchValue built = build(key);
      dict.add(std::move(built), build(value));
    }
    return dict;
  }

  TorchValue convert(const PickleBox<files::PickleTensor>& pickled, PickleIndex index) {
    const auto known = tensors_.find(index);
    if (known != tensors_.end()) return known->second;
    return tensors_.emplace(index, tensor_of(*pickled)).first->second;
  }

  at::Tensor tensor_of(const files::PickleTensor& pickled) {
    try {
      at::Tensor tensor = at::empty({0}, torch_dtype(pickled.dtype));
      tensor.set_(storage_of(pickled.storage), pickled.offset, pickled.sizes, pickled.strides);
      if (tensor.scalar_type() == at::kBool) check_bool_tensor(tensor);
      if (pickled.is_conjugate) tensor = tensor.conj();
      if (pickled.is_negative) tensor = tensor._neg_view();
      return tensor;
    } catch (const c10::Error& error) {
      refuse("libtorch does not accept such a tensor: " +
             std::string(error.what_without_backtrace()));
    }
  }

  void check_bool_tensor(const at::Tensor& tensor) const {
    at::Tensor bytes = tensor.view(at::kByte);
    if (bytes.nbytes() > tensor.storage().nbytes()) {
      // Elements that overlap: a small file may describe an enormous tensor. Its memory is looked
      // at.
      int64_t extent = 1;
      for (int64_t i = 0; i < tensor.dim(); ++i) extent += (tensor.size(i) - 1) * tensor.stride(i);
      bytes = bytes.as_strided({extent}, {1});
    }
    bytes = bytes.contiguous();
    checkpoint::check_bools({static_cast<const std::byte*>(bytes.data_ptr()), bytes.nbytes()},
                            "a tensor", file_->path().string());
  }

  TorchValue convert(const PickleBox<files::PickleNumpyArray>& array, PickleIndex index) {
    const auto known = tensors_.find(index);
    if (known != tensors_.end()) return TorchNumpyArray{.values = known->second};
    if (array->type.kind == '\0') refuse("an array of NumPy without contents");
    if (array->type.kind == 'b') {
      checkpoint::check_bools(std::as_bytes(std::span(array->bytes)), "an array",
                              file_->path().string());
    }
    std::vector<int64_t> sizes = array->sizes;
    if (array->is_column_major) std::ranges::reverse(sizes);
    at::Tensor values = at::empty(sizes, numpy_dtype(array->type));
    if (!array->bytes.empty()) {
      std::memcpy(values.data_ptr(), array->bytes.data(), array->bytes.size());
    }
    if (array->is_column_major) values = values.permute(reversed_dimensions(sizes.size()));
    tensors_.emplace(index, values);
    return TorchNumpyArray{.values = values};
  }

  TorchValue convert(const files::PickleNumpyType& /*type*/, PickleIndex /*index*/) const {
    refuse("a type of NumPy's numbers is not a value");
  }
  TorchValue convert(const PickleBox<files::PickleStorage>& /*storage*/,
                     PickleIndex /*index*/) const {
    refuse("a storage without a tensor");
  }
  TorchValue convert(const PickleBox<files::PickleRecord>& /*record*/,
                     PickleIndex /*index*/) const {
    refuse("an object of a class of Python's");
  }
  TorchValue convert(const PickleBox<files::PickleGlobal>& /*global*/,
                     PickleIndex /*index*/) const {
    refuse("a class or a function is not a value");
  }

  static std::vector<int64_t> reversed_dimensions(size_t count) {
    std::vector<int64_t> dimensions(count);
    for (size_t i = 0; i < count; ++i) dimensions[i] = static_cast<int64_t>(count - 1 - i);
    return dimensions;
  }

  static at::ScalarType numpy_dtype(const files::PickleNumpyType& type) {
    const std::string bits = std::to_string(8 * type.bytes);
    switch (type.kind) {
      case 'b':
        return at::kBool;
      case 'f':
        return torch_dtype("float" + bits);
      case 'u':
        return torch_dtype("uint" + bits);
      default:
        return torch_dtype("int" + bits);
    }
  }

  // One storage for each entry of the archive: tensors that share memory in the file share it here.
  const c10::Storage& storage_of(PickleIndex index) {
    const auto& pickled = *std::get<PickleBox<files::PickleStorage>>(archive_.document().at(index));
    const auto known = storages_.find(pickled.key);
    if (known != storages_.end()) return known->second;
    const std::span<const std::byte> bytes = archive_.bytes(pickled);
    if (reinterpret_cast<uintptr_t>(bytes.data()) % kLargestElement != 0) {
      return storages_.emplace(pickled.key, copied(bytes)).first->second;
    }
    // The mapping is private: this process may write to it.
    auto* data = file_->data() + (bytes.data() - file_->bytes().data());
    using Owner = std::shared_ptr<const MappedFile>;
    c10::DataPtr pointer(
        data, new Owner(file_), [](void* owner) { delete static_cast<Owner*>(owner); }, c10::kCPU);
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes.size(), std::move(pointer),
                         /*allocator=*/nullptr, /*resizable=*/false);
    return storages_.emplace(pickled.key, std::move(storage)).first->second;
  }

  static c10::Storage copied(std::span<const std::byte> bytes) {
    const at::Tensor copy = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
    if (!bytes.empty()) std::memcpy(copy.data_ptr(), bytes.data(), bytes.size());
    return copy.storage();
  }

  struct Deeper {
    explicit Deeper(ValueBuilder& owner) : builder(owner) {
      if (++builder.depth_ > kDeepestTorchValue) builder.refuse("its values are nested too deeply");
    }
    ~Deeper() { --builder.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ValueBuilder& builder;
  };

  const files::PickleArchive& archive_;
  std::shared_ptr<const MappedFile> file_;
  std::unordered_map<std::string, c10::Storage> storages_;
  std::unordered_map<PickleIndex, at::Tensor> tensors_;
  size_t budget_ = size_t{1} << 20U;  // bytes that may still be copied
  size_t depth_ = 0;
};

}  // namespace

TorchValue load_torch_archive(const std::filesystem::path& path) {
  const auto file = files::map_checkpoint_file(path, "the torch archive");
  const files::PickleArchive archive(file->bytes(), path.string());
  return ValueBuilder(archive, file).build(archive.document().root);
}

}  // namespace accelerate
