#include "checkpoint/archive/torch_archive_writer.h"

#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>

#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

#include "accelerate/errors.h"
#include "checkpoint/archive/torch_archive_format.h"
#include "files/durable/replace_file.h"
#include "files/pickle/pickle_dtypes.h"
#include "files/pickle/pickle_writer.h"
#include "files/pickle/zip_writer.h"

namespace accelerate {
namespace {

// The pickle of a value, and the memory of its tensors in the order of their keys.
class ValuePickler {
 public:
  void write(const TorchValue& value) {
    std::visit([&](const auto& held) { put(held); }, value.variant());
  }

  std::string pickle() && { return std::move(writer_).finish(); }

  struct NamedStorage {
    std::string name;  // where the first tensor lies that uses it: ['state'][0]['exp_avg']
    c10::Storage storage;
  };
  const std::vector<NamedStorage>& storages() const { return storages_; }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw CheckpointError(
        {.what = "torch.save's format cannot hold " + what,
         .where = path_.text(),
         .hint = "leave it out, or save it as numbers, texts, lists, dicts or tensors"});
  }

  void put(std::monostate /*none*/) { writer_.none(); }
  void put(bool value) { writer_.boolean(value); }
  void put(int64_t value) { writer_.integer(value); }
  void put(double value) { writer_.number(value); }
  void put(const std::string& value) {
    if (!writer_.text(value)) refuse("a string that is not valid UTF-8, or is longer than 4 GiB");
  }
  void put(const TorchBytes& value) {
    constexpr size_t kLongest = size_t{1} << 31U;  // each byte may become two
    if (value.bytes.size() >= kLongest) refuse("more than 2 GiB as bytes: use a tensor");
    writer_.bytes(value.bytes);
  }
  void put(const TorchBigInteger& value) {
    if (!writer_.big_integer(value.digits)) {
      refuse("the large integer '" + value.digits.substr(0, 40) + "'");
    }
  }
  void put(const TorchValue::List& list) {
    writer_.begin_list();
    put_items(list);
    writer_.end_list();
  }
  void put(const TorchTuple& tuple) {
    writer_.begin_tuple();
    put_items(tuple.items);
    writer_.end_tuple();
  }
  void put(const TorchSet& set) {
    for (const TorchValue& item : set.items) check_hashable(item, "a set with ");
    writer_.begin_set();
    put_items(set.items);
    writer_.end_set();
  }
  void put(const TorchSize& size) { writer_.size(size.sizes); }
  void put(at::ScalarType type) {
    const auto name = torch_dtype_name(type);
    if (!name) refuse(std::string("the type of elements ") + c10::toString(type));
    writer_.dtype(*name);
  }
  void put(c10::Device device) {
    const auto index = device.has_index() ? std::optional<int64_t>(device.index()) : std::nullopt;
    writer_.device(c10::DeviceTypeName(device.type(), /*lower_case=*/true), index);
  }
  void put(const TorchNumpyArray& /*array*/) { refuse("a NumPy array that weights_only takes"); }

  void put(const TorchDict& dict) {
    writer_.begin_dict(dict.kind() == TorchDict::Kind::kOrderedDict);
    for (const auto& [key, value] : dict.entries()) {
      check_hashable(key, "a dict with the key ");
      write(key);
      const ValuePath::Step step = deeper(key_text(key));
      write(value);
    }
    writer_.end_dict();
  }

  void put(const at::Tensor& given) {
    if (!given.defined()) refuse("an undefined tensor");
    const at::Tensor& tensor = on_host_of_xla(given);
    const auto dtype = torch_dtype_name(tensor.scalar_type());
    if (!dtype || tensor.is_meta() || tensor.layout() != at::kStrided || !tensor.has_storage()) {
      refuse("a tensor without plain memory: " + tensor.toString());
    }
    const files::PickleStorage& storage = storage_of(tensor.storage(), *dtype);
    writer_.tensor({.dtype = *dtype,
                    .storage = 0,
                    .offset = tensor.storage_offset(),
                    .sizes = tensor.sizes().vec(),
                    .strides = tensor.strides().vec(),
                    .is_conjugate = tensor.is_conj(),
                    .is_negative = tensor.is_neg()},
                   storage);
  }

  // Tensors of an XLA device have no memory that could be written: copies on the host stand for
  // them, one for all handles of a tensor.
  const at::Tensor& on_host_of_xla(const at::Tensor& tensor) {
    if (tensor.device().type() != c10::kXLA) return tensor;
    at::Tensor& copy = host_copies_[tensor.unsafeGetTensorImpl()];
    if (!copy.defined()) copy = tensor.detach().to(at::kCPU);
    return copy;
  }

  void put_items(const std::vector<TorchValue>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      const ValuePath::Step step = deeper(std::to_string(i));
      write(items[i]);
    }
  }

  ValuePath::Step deeper(std::string name) {
    if (path_.depth() == kDeepestTorchValue) refuse("values that are nested so deeply");
    return ValuePath::Step(path_, std::move(name));
  }

  static std::string key_text(const TorchValue& key) {
    if (const auto* text = std::get_if<std::string>(&key.variant())) return "'" + *text + "'";
    if (const auto* integer = std::get_if<int64_t>(&key.variant())) return std::to_string(*integer);
    return key.kind();
  }

  void check_hashable(const TorchValue& value, const char* holder) const {
    if (const auto* tuple = std::get_if<TorchTuple>(&value.variant())) {
      for (const TorchValue& item : tuple->items) check_hashable(item, holder);
      return;
    }
    const bool is_hashable = !std::holds_alternative<TorchValue::List>(value.variant()) &&
                             !std::holds_alternative<TorchSet>(value.variant()) &&
                             !std::holds_alternative<TorchSize>(value.variant()) &&
                             !value.is_dict() && !value.is_tensor();
    if (!is_hashable) refuse(std::string(holder) + value.kind());
  }

  // The type by which a storage is first seen is the one that it has in the file.
  const files::PickleStorage& storage_of(const c10::Storage& storage, std::string_view dtype) {
    const auto [entry, is_new] = by_memory_.try_emplace(storage.unsafeGetStorageImpl());
    if (!is_new) return entry->second;
    const files::PickleDtypeFacts& facts = *files::find_pickle_dtype(dtype);
    const bool is_typed = !facts.storage.empty() && storage.nbytes() % facts.bytes == 0;
    entry->second = {.dtype = is_typed ? facts.name : "uint8",
                     .is_untyped = !is_typed,
                     .key = std::to_string(storages_.size()),
                     .elements = is_typed ? storage.nbytes() / facts.bytes : storage.nbytes()};
    storages_.push_back({.name = path_.text(), .storage = storage});
    return entry->second;
  }

  files::PickleWriter writer_;
  ValuePath path_;
  std::unordered_map<const c10::StorageImpl*, files::PickleStorage> by_memory_;
  std::vector<NamedStorage> storages_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> host_copies_;
};

// The memory, all of it, on the host.
at::Tensor host_bytes(const c10::Storage& storage) {
  at::Tensor bytes = at::empty({0}, at::TensorOptions(storage.device()).dtype(at::kByte));
  bytes.set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1});
  return bytes.cpu();
}

void write_storage(files::ZipWriter& zip, files::ByteSink& sink, const std::string& entry,
                   const ValuePickler::NamedStorage& named) {
  zip.begin_entry(entry, named.storage.nbytes());
  sink.begin_part(named.name);
  if (named.storage.nbytes() > 0) {
    const at::Tensor bytes = host_bytes(named.storage);
    zip.write({reinterpret_cast<const std::byte*>(bytes.data_ptr()), bytes.nbytes()});
  }
  sink.end_part();
  zip.end_entry();
}

}  // namespace

void write_torch_archive(files::ByteSink& sink, const TorchValue& value, const std::string& name) {
  ValuePickler pickler;
  pickler.write(value);
  const std::vector<ValuePickler::NamedStorage> storages = pickler.storages();

  const std::string folder = name + "/";
  files::ZipWriter zip(sink);
  zip.add_entry(folder + "data.pkl", std::move(pickler).pickle());
  zip.add_entry(folder + ".format_version", "1");
  zip.add_entry(folder + ".storage_alignment", std::to_string(files::ZipWriter::kAlignment));
  zip.add_entry(folder + "byteorder", "little");
  for (size_t i = 0; i < storages.size(); ++i) {
    write_storage(zip, sink, folder + "data/" + std::to_string(i), storages[i]);
  }
  zip.add_entry(folder + "version", "3\n");
  zip.add_entry(folder + ".data/serialization_id", zip.contents_id());
  zip.finish();
}

void save_torch_archive(const std::filesystem::path& path, const TorchValue& value) {
  files::replace_file(
      path, [&](files::ByteSink& sink) { write_torch_archive(sink, value, path.stem().string()); });
}

}  // namespace accelerate
