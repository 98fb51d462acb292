#include "checkpoint/model/load_source.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/torch_archive.h"
#include "base/message_text.h"
#include "base/unique_fd.h"
#include "checkpoint/model/mapped_safetensors.h"
#include "checkpoint/model/pieced_source.h"
#include "files/durable/system_calls.h"

namespace accelerate::checkpoint {
namespace {

[[noreturn]] void refuse_source(const std::filesystem::path& file, const std::string& what,
                                const std::string& hint) {
  throw CheckpointError({.what = what, .where = file.string(), .hint = hint});
}

// The last line of defence: LoadPlan compares shapes before.
void require_size(const std::string& name, size_t stored, size_t wanted) {
  if (stored == wanted) return;
  throw CheckpointError({.what = "tensor " + in_quotes(name) + " has " + std::to_string(stored) +
                                 " bytes where " + std::to_string(wanted) + " are expected",
                         .hint = "load it into the model that was saved"});
}

constexpr size_t kPieceBytes = 1 << 20;
constexpr int64_t kPiecesOfAThread = 2;  // at least

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

// The file of a mapping, opened once more; nothing if another one has taken its name meanwhile.
UniqueFd reopen(const MappedFile& mapping) {
  UniqueFd file(open(mapping.path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file || !mapping.is_same_file(file.get())) return {};
  return file;
}

void read_at(int file, size_t offset, std::span<std::byte> bytes,
             const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = pread(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw files::system_error("the file cannot be read", path, errno, files::Access::kRead);
    }
    if (count == 0)
      refuse_source(path, "the file became shorter while it was read", "load it again");
    offset += static_cast<size_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

// Tensors that are views of a private mapping which nobody else knows.
class SafetensorsSource final : public TensorSource {
 public:
  explicit SafetensorsSource(const std::filesystem::path& path) : file_(path) {
    check_format();
    for (size_t position = 0; position < file_.names.size(); ++position) {
      const SafetensorsInfo& info = file_.info_at(position);
      // Throws for a type that torch lacks and for bools that are none.
      if (!info.scalar_type || *info.scalar_type == at::kBool) file_.tensor_at(position);
      tensors_.push_back({.name = info.name, .shape = info.shape, .dtype = *info.scalar_type});
    }
  }

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& aliases() const override { return file_.aliases; }
  at::Tensor tensor(const std::string& name) const override {
    return file_.tensor_at(file_.position_of(name));
  }

  // From the page cache straight to where they belong. Through the mapping the kernel would enter
  // each page into the tables of this process, and take it out again on all cores, lest a model
  // that is loaded stays in memory twice: a third of the time.
  void read(const std::string& name, std::span<std::byte> bytes) const override {
    const std::span<const std::byte> mapped = mapped_bytes(name);
    require_size(name, mapped.size(), bytes.size());
    if (!descriptor_) descriptor_ = reopen(*file_.mapping);  // not before: a model may have many
    const auto first = static_cast<size_t>(mapped.data() - file_.mapping->data());
    const auto read_piece = [&](size_t at) {
      const size_t size = std::min(kPieceBytes, bytes.size() - at);
      if (*descriptor_) {
        read_at(descriptor_->get(), first + at, bytes.subspan(at, size), file_.mapping->path());
      } else {
        std::memcpy(bytes.data() + at, mapped.data() + at, size);
        advise(mapped.subspan(at, size), MADV_DONTNEED);
      }
    };
    const auto pieces = static_cast<int64_t>((bytes.size() + kPieceBytes - 1) / kPieceBytes);
    at::parallel_for(0, pieces, kPiecesOfAThread, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) read_piece(static_cast<size_t>(i) * kPieceBytes);
    });
  }

  void forget(const std::string& name) const override { advise(mapped_bytes(name), MADV_DONTNEED); }

 private:
  void check_format() const {
    const auto format = file_.metadata.find("format");
    if (format == file_.metadata.end() || format->second == "pt") return;
    refuse_source(file_.mapping->path(),
                  "the file holds a model of the format " + in_quotes(format->second) +
                      ", whose names and layouts are not those of torch",
                  "load the file of the model that is for torch (format \"pt\")");
  }

  std::span<const std::byte> mapped_bytes(const std::string& name) const {
    const size_t position = file_.position_of(name);
    return {file_.bytes_at(position), file_.info_at(position).bytes};
  }

  MappedSafetensors file_;
  mutable std::optional<UniqueFd> descriptor_;
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
    refuse_source(path, std::string("the file holds ") + value.kind() + ", not a state dict",
                  "save model.state_dict() with torch.save()");
  }
  NamedTensors tensors;
  for (const auto& [key, tensor] : value.as_dict().entries()) {
    const auto* name = std::get_if<std::string>(&key.variant());
    if (name == nullptr || !tensor.is_tensor()) {
      const std::string subject =
          name == nullptr ? std::string("a key") : "the value of " + in_quotes(*name);
      refuse_source(path,
                    "the file holds no state dict: " + subject + " is " +
                        (name == nullptr ? key : tensor).kind(),
                    "save model.state_dict() alone with torch.save()");
    }
    tensors.insert(*name, tensor.as_tensor());
  }
  return tensors;
}

std::unique_ptr<TensorSource> open_folder(const std::filesystem::path& folder, files::Links links) {
  auto source = std::make_unique<PiecedSource>(folder, links);
  if (!source->param_groups()) return source;
  refuse_source(folder, "the folder holds the state of an optimizer, not a model",
                "name the folder of the model, pytorch_model_fsdp_0");
}

}  // namespace

void TensorSource::read(const std::string& name, std::span<std::byte> bytes) const {
  const at::Tensor plain =
      tensor(name).detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
  require_size(name, plain.nbytes(), bytes.size());
  // A model may be given its own tensors.
  std::memmove(bytes.data(), plain.data_ptr(), bytes.size());
}

std::unique_ptr<TensorSource> open_tensor_source(const std::filesystem::path& file,
                                                 files::Links links) {
  if (files::leads_to_directory(file)) return open_folder(file, links);
  if (file.extension() == ".safetensors") return std::make_unique<SafetensorsSource>(file);
  return std::make_unique<TensorsSource>(tensors_of_archive(file));
}

std::unique_ptr<TensorSource> tensor_source_of(const NamedTensors& tensors) {
  return std::make_unique<TensorsSource>(tensors);
}

}  // namespace accelerate::checkpoint
