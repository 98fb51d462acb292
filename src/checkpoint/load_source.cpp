#include "checkpoint/load_source.h"

#include <ATen/ATen.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/torch_archive.h"
#include "files/json_text.h"

namespace accelerate::checkpoint {
namespace {

using files::in_quotes;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what,
                         const std::string& hint) {
  throw CheckpointError({.what = what, .where = file.string(), .hint = hint});
}

constexpr size_t kPieceBytes = 8 << 20;

// For the whole pages among these bytes. The kernel may do nothing of it.
void advise(std::span<const std::byte> bytes, int advice) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  // NOLINTBEGIN(cppcoreguidelines-pro-type-reinterpret-cast,performance-no-int-to-ptr): rounded
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (address + page - 1) / page * page;
  const uintptr_t end = (address + bytes.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, advice);
  // NOLINTEND(cppcoreguidelines-pro-type-reinterpret-cast,performance-no-int-to-ptr)
}

// Tensors that are views of a private mapping which nobody else knows.
class SafetensorsSource final : public TensorSource {
 public:
  explicit SafetensorsSource(const std::filesystem::path& path) : file_(path) {
    check_format();
    for (const std::string& name : file_.names()) {
      const SafetensorsInfo& info = file_.info(name);
      // Throws for a type that torch lacks and for bools that are none.
      if (!info.scalar_type || *info.scalar_type == at::kBool) file_.tensor(name);
      tensors_.push_back({.name = name, .shape = info.shape, .dtype = *info.scalar_type});
    }
  }

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& aliases() const override { return file_.aliases(); }
  at::Tensor tensor(const std::string& name) const override { return file_.tensor(name); }

  // Piece by piece, each given back as soon as it is copied: a model that is loaded does not stay
  // in memory twice. Pages that are given back hold what the file holds; to touch them reads them
  // again.
  void read(const std::string& name, std::span<std::byte> bytes) const override {
    const std::span<const std::byte> mapped = file_.mapped_bytes(name);
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      const size_t size = std::min(kPieceBytes, bytes.size() - at);
      // One call in place of a page fault for every few pages. Kernels before 5.14 do not know it.
      advise(mapped.subspan(at, size), MADV_POPULATE_READ);
      std::memcpy(bytes.data() + at, mapped.data() + at, size);
      advise(mapped.subspan(at, size), MADV_DONTNEED);
    }
  }

  void forget(const std::string& name) const override {
    advise(file_.mapped_bytes(name), MADV_DONTNEED);
  }

 private:
  void check_format() const {
    const auto format = file_.metadata().find("format");
    if (format == file_.metadata().end() || format->second == "pt") return;
    refuse(file_.path(),
           "the file holds a model of the format " + in_quotes(format->second) +
               ", whose names and layouts are not those of torch",
           "load the file of the model that is for torch (format \"pt\")");
  }

  SafetensorsFile file_;
  std::vector<StoredTensor> tensors_;
};

class TensorsSource final : public TensorSource {
 public:
  explicit TensorsSource(NamedTensors tensors) : tensors_(std::move(tensors)) {
    for (const auto& item : tensors_) {
      stored_.push_back({.name = item.key(),
                         .shape = item.value().sizes().vec(),
                         .dtype = item.value().scalar_type()});
    }
  }

  const std::vector<StoredTensor>& tensors() const override { return stored_; }
  const std::map<std::string, std::string>& aliases() const override { return no_aliases_; }
  at::Tensor tensor(const std::string& name) const override { return tensors_[name]; }

 private:
  NamedTensors tensors_;
  std::vector<StoredTensor> stored_;
  std::map<std::string, std::string> no_aliases_;
};

NamedTensors tensors_of_archive(const std::filesystem::path& path) {
  const TorchValue value = load_torch_archive(path);
  if (!value.is_dict()) {
    refuse(path, std::string("the file holds ") + value.kind() + ", not a state dict",
           "save model.state_dict() with torch.save()");
  }
  NamedTensors tensors;
  for (const auto& [key, tensor] : value.as_dict().entries()) {
    const auto* name = std::get_if<std::string>(&key.variant());
    if (name == nullptr || !tensor.is_tensor()) {
      const std::string subject =
          name == nullptr ? std::string("a key") : "the value of " + in_quotes(*name);
      refuse(path,
             "the file holds no state dict: " + subject + " is " +
                 (name == nullptr ? key : tensor).kind(),
             "save model.state_dict() alone with torch.save()");
    }
    tensors.insert(*name, tensor.as_tensor());
  }
  return tensors;
}

}  // namespace

void TensorSource::read(const std::string& name, std::span<std::byte> bytes) const {
  const at::Tensor plain =
      tensor(name).detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
  // A model may be given its own tensors.
  std::memmove(bytes.data(), plain.data_ptr(), bytes.size());
}

std::unique_ptr<TensorSource> open_tensor_source(const std::filesystem::path& file) {
  if (file.extension() == ".safetensors") return std::make_unique<SafetensorsSource>(file);
  return std::make_unique<TensorsSource>(tensors_of_archive(file));
}

std::unique_ptr<TensorSource> tensor_source_of(const NamedTensors& tensors) {
  return std::make_unique<TensorsSource>(tensors);
}

}  // namespace accelerate::checkpoint
