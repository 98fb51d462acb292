#include "accelerate/idx.h"

#include <ATen/ATen.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "data/idx_format.h"

namespace accelerate {
namespace {

[[noreturn]] void refuse_idx_file(const std::filesystem::path& path, std::string what,
                                  std::string hint = {}) {
  throw DataError({.what = std::move(what), .where = path.string(), .hint = std::move(hint)});
}

// Bytes of a file, decompressed if it is a gzip file.
class ByteSource {
 public:
  explicit ByteSource(const std::filesystem::path& path) : path_(path) {
    errno = 0;
    file_.reset(gzopen(path.c_str(), "rbe"));
    if (!file_) {
      refuse_idx_file(path,
                      "the IDX file cannot be opened: " +
                          std::generic_category().message(errno ? errno : ENOMEM),
                      "check the path and its permissions");
    }
    gzbuffer(file_.get(), 256 * 1024);
  }

  // Reads up to `count` bytes; fewer only at the end of the file.
  size_t read(uint8_t* target, size_t count) {
    constexpr size_t kChunk = size_t{1} << 20;
    size_t done = 0;
    while (done < count) {
      const auto wanted = static_cast<unsigned>(std::min(kChunk, count - done));
      const int got = gzread(file_.get(), target + done, wanted);
      if (got < 0) fail();
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    // A gzip stream that stops early reads as a short file with this error set.
    int code = Z_OK;
    gzerror(file_.get(), &code);
    if (code != Z_OK && code != Z_STREAM_END) fail();
    return done;
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose_r(file); }
  };

  [[noreturn]] void fail() {
    const int system_error = errno;
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    refuse_idx_file(
        path_,
        "the IDX file is damaged or cannot be read: " +
            (code == Z_ERRNO ? std::generic_category().message(system_error) : std::string(text)),
        "fetch the file again");
  }

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

at::ScalarType idx_scalar_type(IdxType type) {
  switch (type) {
    case IdxType::kUint8:
      return at::kByte;
    case IdxType::kInt8:
      return at::kChar;
    case IdxType::kInt16:
      return at::kShort;
    case IdxType::kInt32:
      return at::kInt;
    case IdxType::kFloat32:
      return at::kFloat;
    case IdxType::kFloat64:
      return at::kDouble;
  }
  return at::kByte;
}

IdxHeader read_header(ByteSource& source, const std::filesystem::path& path) {
  std::array<uint8_t, 4> bytes{};
  if (source.read(bytes.data(), bytes.size()) != bytes.size()) refuse_truncated_idx_header(path);
  const IdxMagic magic = parse_idx_magic(bytes, path);
  std::vector<uint8_t> sizes(4 * magic.dimensions);
  if (source.read(sizes.data(), sizes.size()) != sizes.size()) refuse_truncated_idx_header(path);
  return parse_idx_sizes(magic, sizes, path);
}

// Reads exactly `bytes` bytes up to the end of the file. The buffer doubles as data arrives and
// never grows past `bytes`, so a header that lies costs no memory.
std::vector<uint8_t> read_body(ByteSource& source, size_t bytes,
                               const std::filesystem::path& path) {
  constexpr size_t kFirst = size_t{1} << 20;
  std::vector<uint8_t> body;
  while (body.size() < bytes) {
    const size_t filled = body.size();
    const size_t goal = std::min(bytes, std::max(kFirst, 2 * filled));
    body.reserve(goal);
    body.resize(goal);
    const size_t got = source.read(body.data() + filled, goal - filled);
    if (got != goal - filled) refuse_truncated_idx_data(bytes, filled + got, path);
  }
  uint8_t beyond = 0;
  if (source.read(&beyond, 1) != 0) refuse_idx_data_after_end(bytes, path);
  return body;
}

void to_native_byte_order(std::vector<uint8_t>& body, size_t width) {
  if (width == 1 || std::endian::native == std::endian::big) return;
  for (size_t i = 0; i < body.size(); i += width) {
    std::reverse(body.begin() + static_cast<ptrdiff_t>(i),
                 body.begin() + static_cast<ptrdiff_t>(i + width));
  }
}

}  // namespace

at::Tensor read_idx(const std::filesystem::path& path) {
  ByteSource source(path);
  const IdxHeader header = read_header(source, path);
  const at::ScalarType type = idx_scalar_type(header.magic.type);
  auto body = std::make_shared<std::vector<uint8_t>>(read_body(source, header.data_bytes, path));
  to_native_byte_order(*body, header.magic.element_bytes());
  if (body->empty()) return at::empty(header.shape, type);
  return at::from_blob(
      body->data(), header.shape, [body](void*) {}, at::TensorOptions().dtype(type));
}

}  // namespace accelerate
