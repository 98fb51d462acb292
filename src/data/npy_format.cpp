#include "data/npy_format.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
// NumPy's own limit is 10,000 bytes; a plain array needs about 100.
constexpr size_t kMostHeaderBytes = 1 << 16;
constexpr size_t kMostDimensions = 64;

// Reads the header's text, a Python dict of three known entries, from left to right.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, size_t offset, const std::filesystem::path& path)
      : text_(text), offset_(offset), path_(path) {}

  [[noreturn]] void refuse(const std::string& what, const std::string& hint) const {
    throw DataError({.what = what,
                     .where = path_.string() + ", byte " + std::to_string(offset_ + at_),
                     .hint = hint});
  }
  [[noreturn]] void refuse_damaged() const {
    refuse("the header of the .npy file is damaged", "write the file again with numpy.save");
  }

  // Whether `token` comes next, after blanks; steps over it if so.
  bool accept(std::string_view token) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) refuse_damaged();
  }

  std::string_view string() {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') refuse_damaged();
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse_damaged();
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  bool boolean() {
    if (accept("True")) return true;
    expect("False");
    return false;
  }

  // A tuple of sizes: (), (3,), (3, 4). Python 2 wrote them as 3L.
  std::vector<int64_t> shape() {
    std::vector<int64_t> sizes;
    expect("(");
    while (!accept(")")) {
      skip_blanks();
      int64_t size = 0;
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0 || sizes.size() == kMostDimensions) refuse_damaged();
      at_ += static_cast<size_t>(end - begin);
      accept("L");
      sizes.push_back(size);
      if (accept(",")) continue;
      expect(")");
      break;
    }
    return sizes;
  }

  void expect_end() {
    skip_blanks();
    if (at_ != text_.size()) refuse_damaged();
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::string_view text_;
  size_t offset_;
  const std::filesystem::path& path_;
  size_t at_ = 0;
};

constexpr std::string_view kTypesHint =
    "convert it in NumPy: array.astype('<f4'); bool, int8 to int64, uint8 to uint64 and float16 to "
    "float64 can be read";

void parse_type(HeaderReader& reader, NpyLayout& layout) {
  if (reader.accept("[")) {
    reader.refuse("the .npy file holds structures, not numbers", std::string(kTypesHint));
  }
  const std::string descr(reader.string());
  if (descr.find('O') != std::string::npos) {
    reader.refuse("the .npy file holds Python objects, not numbers", std::string(kTypesHint));
  }
  size_t bytes = 0;
  const char* end = descr.data() + descr.size();
  const bool is_known = descr.size() >= 3 &&
                        std::string_view("<>|").find(descr[0]) != std::string_view::npos &&
                        std::from_chars(descr.data() + 2, end, bytes).ptr == end &&
                        ((descr[1] == 'b' && bytes == 1) ||
                         ((descr[1] == 'i' || descr[1] == 'u') &&
                          (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8)) ||
                         (descr[1] == 'f' && (bytes == 2 || bytes == 4 || bytes == 8)));
  if (!is_known) {
    reader.refuse(
        "the .npy file holds elements of type '" + descr.substr(0, 32) + "', which cannot be read",
        std::string(kTypesHint));
  }
  if (bytes > 1 && descr[0] != '<') {
    reader.refuse("the .npy file holds big-endian numbers of type '" + descr + "'",
                  "convert it in NumPy: array.astype('<" + descr.substr(1) + "')");
  }
  layout.kind = static_cast<NpyKind>(descr[1]);
  layout.element_bytes = bytes;
}

void parse_dict(HeaderReader& reader, NpyLayout& layout) {
  bool has_type = false;
  std::optional<bool> fortran_order;
  bool has_shape = false;
  reader.expect("{");
  while (!reader.accept("}")) {
    const std::string_view key = reader.string();
    reader.expect(":");
    if (key == "descr" && !has_type) {
      parse_type(reader, layout);
      has_type = true;
    } else if (key == "fortran_order" && !fortran_order) {
      fortran_order = reader.boolean();
    } else if (key == "shape" && !has_shape) {
      layout.shape = reader.shape();
      has_shape = true;
    } else {
      reader.refuse_damaged();
    }
    if (reader.accept(",")) continue;
    reader.expect("}");
    break;
  }
  reader.expect_end();
  if (!has_type || !fortran_order || !has_shape) reader.refuse_damaged();
  if (layout.shape.empty()) {
    reader.refuse("the .npy file holds a single number, not rows", "save an array with rows");
  }
  if (*fortran_order && layout.shape.size() > 1) {
    reader.refuse("the .npy file is in Fortran order: its rows do not lie together",
                  "convert it in NumPy: numpy.ascontiguousarray(array)");
  }
}

}  // namespace

NpyLayout parse_npy(std::span<const std::byte> file, const std::filesystem::path& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const HeaderReader beginning(text, 0, path);
  if (!text.starts_with(kNpyMagic)) {
    beginning.refuse("not a .npy file: it does not begin with the magic string of the format",
                     "save the array with numpy.save; unpack the arrays of a .npz file first");
  }
  const auto byte = [&](size_t i) { return static_cast<size_t>(file[i]); };
  if (file.size() < 12) beginning.refuse_damaged();
  const size_t version = byte(6);
  if (version < 1 || version > 3) {
    beginning.refuse("the .npy file is of version " + std::to_string(version) +
                         ", the known ones are 1, 2 and 3",
                     "write the file again with numpy.save");
  }
  const size_t begin = version == 1 ? 10 : 12;
  const size_t header_bytes = version == 1
                                  ? byte(8) | byte(9) << 8
                                  : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (header_bytes > file.size() - begin || header_bytes > kMostHeaderBytes) {
    beginning.refuse("the header of the .npy file claims " + std::to_string(header_bytes) +
                         " bytes, more than there are or than any plain array needs",
                     "the file is truncated or damaged: write it again with numpy.save");
  }

  NpyLayout layout;
  HeaderReader reader(text.substr(begin, header_bytes), begin, path);
  parse_dict(reader, layout);
  layout.offset = begin + header_bytes;

  // Extents of zero are left out of the products at first, so that the strides of the tensor cannot
  // overflow either.
  auto row_bytes = static_cast<int64_t>(layout.element_bytes);
  bool has_empty_rows = false;
  bool overflows = false;
  for (size_t i = 1; i < layout.shape.size(); ++i) {
    has_empty_rows = has_empty_rows || layout.shape[i] == 0;
    if (layout.shape[i] == 0) continue;
    overflows = overflows || __builtin_mul_overflow(row_bytes, layout.shape[i], &row_bytes);
  }
  int64_t promised = row_bytes;
  if (layout.shape[0] != 0) {
    overflows = overflows || __builtin_mul_overflow(row_bytes, layout.shape[0], &promised);
  }
  if (overflows) {
    reader.refuse("the .npy file claims more data than any file can hold",
                  "the file is damaged: write it again with numpy.save");
  }
  layout.row_bytes = has_empty_rows ? 0 : static_cast<size_t>(row_bytes);
  const size_t bytes = has_empty_rows || layout.shape[0] == 0 ? 0 : static_cast<size_t>(promised);
  const size_t found = file.size() - layout.offset;
  if (found != bytes) {
    reader.refuse("the header of the .npy file promises " + std::to_string(bytes) +
                      " bytes of data, the file holds " + std::to_string(found),
                  found < bytes ? "the file is truncated: fetch or write it again"
                                : "save one array per file");
  }
  return layout;
}

}  // namespace accelerate
