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

namespace accelerate {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, std::string what,
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
      refuse(path,
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
    refuse(
        path_,
        "the IDX file is damaged or cannot be read: " +
            (code == Z_ERRNO ? std::generic_category().message(system_error) : std::string(text)),
        "fetch the file again");
  }

  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

struct ElementType {
  uint8_t code;
  at::ScalarType type;
};
constexpr std::array<ElementType, 6> kElementTypes{{{0x08, at::kByte},
                                                    {0x09, at::kChar},
                                                    {0x0B, at::kShort},
                                                    {0x0C, at::kInt},
                                                    {0x0D, at::kFloat},
                                                    {0x0E, at::kDouble}}};

struct Header {
  at::ScalarType type = at::kByte;
  std::vector<int64_t> shape;
  size_t bytes = 0;
};

Header read_header(ByteSource& source, const std::filesystem::path& path) {
  std::array<uint8_t, 4> magic{};
  if (source.read(magic.data(), magic.size()) != magic.size()) {
    refuse(path, "the IDX file is truncated: it ends inside its header");
  }
  const auto* known = std::find_if(kElementTypes.begin(), kElementTypes.end(),
                                   [&](const ElementType& e) { return e.code == magic[2]; });
  if (magic[0] != 0 || magic[1] != 0 || known == kElementTypes.end()) {
    refuse(path, "not an IDX file: its first bytes are no magic number of the format");
  }

  Header header{.type = known->type, .shape = {}, .bytes = c10::elementSize(known->type)};
  std::vector<uint8_t> sizes(size_t{4} * magic[3]);
  if (source.read(sizes.data(), sizes.size()) != sizes.size()) {
    refuse(path, "the IDX file is truncated: it ends inside its header");
  }
  // Extents of zero are left out of the product at first, so that a hostile shape such as
  // {0, 2^32 - 1, 2^32 - 1, 2^32 - 1} cannot overflow the strides of the tensor either.
  bool empty = false;
  int64_t product = static_cast<int64_t>(header.bytes);
  for (size_t i = 0; i < sizes.size(); i += 4) {
    const int64_t extent = (int64_t{sizes[i]} << 24) | (int64_t{sizes[i + 1]} << 16) |
                           (int64_t{sizes[i + 2]} << 8) | int64_t{sizes[i + 3]};
    header.shape.push_back(extent);
    empty = empty || extent == 0;
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) {
      refuse(path, "the IDX file claims more data than any file can hold");
    }
  }
  header.bytes = empty ? 0 : static_cast<size_t>(product);
  return header;
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
    if (got != goal - filled) {
      refuse(path, "the IDX file is truncated: its header promises " + std::to_string(bytes) +
                       " bytes of data, it holds " + std::to_string(filled + got));
    }
  }
  uint8_t beyond = 0;
  if (source.read(&beyond, 1) != 0) {
    refuse(path, "the IDX file goes on after the " + std::to_string(bytes) +
                     " bytes of data that its header promises");
  }
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
  const Header header = read_header(source, path);
  auto body = std::make_shared<std::vector<uint8_t>>(read_body(source, header.bytes, path));
  to_native_byte_order(*body, c10::elementSize(header.type));
  if (body->empty()) return at::empty(header.shape, header.type);
  return at::from_blob(
      body->data(), header.shape, [body](void*) {}, at::TensorOptions().dtype(header.type));
}

}  // namespace accelerate
