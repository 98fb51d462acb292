#include "accelerate/notebook_display.h"

#include <cxxabi.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>

#include "accelerate/errors.h"
#include "base/notebook_channel.h"

namespace accelerate {
namespace {

constexpr const char* kSvg = "image/svg+xml";

// Jupyter's messages are text: other bytes travel as base64.
bool is_binary(const std::string& type) { return type.starts_with("image/") && type != kSvg; }

std::string base64(const std::string& bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) {
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (size_t i = 0; i < 4; ++i) {
      text += at + i <= bytes.size() ? kDigits[group >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

std::string image_type(const std::filesystem::path& file) {
  static const std::map<std::string, std::string> types{{".png", "image/png"},
                                                        {".jpg", "image/jpeg"},
                                                        {".jpeg", "image/jpeg"},
                                                        {".gif", "image/gif"},
                                                        {".svg", kSvg}};
  const auto found = types.find(file.extension().string());
  if (found != types.end()) return found->second;
  throw DataError({.what = "unknown kind of image",
                   .where = file.string(),
                   .hint = "the name must end in .png, .jpg, .jpeg, .gif or .svg"});
}

}  // namespace

bool in_notebook() { return has_notebook_channel(); }

void display(const MimeBundle& bundle, const std::string& id) {
  if (!in_notebook()) {
    const auto text = bundle.find("text/plain");
    if (text != bundle.end()) std::cout << text->second << "\n";
    return;
  }
  MimeBundle sent;
  for (const auto& [type, data] : bundle) sent[type] = is_binary(type) ? base64(data) : data;
  std::cout.flush();
  if (!show_in_notebook(sent, id)) {
    throw DataError(
        {.what = "the notebook does not take what is to be displayed",
         .hint = "see whether the kernel still runs a cell and the disk of /tmp has room"});
  }
}

void display_html(const std::string& html, const std::string& id) {
  display(MimeBundle{{"text/html", html}}, id);
}

void display_image(const std::filesystem::path& file, const std::string& id) {
  const std::string type = image_type(file);
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in || bytes.empty()) {
    throw DataError({.what = "the image cannot be read, or is empty", .where = file.string()});
  }
  display(MimeBundle{{type, bytes}, {"text/plain", file.filename().string()}}, id);
}

namespace detail {

std::string readable_type_name(const std::type_info& type) {
  int status = 0;
  char* name = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string readable = status == 0 ? name : type.name();
  std::free(name);
  return readable;
}

}  // namespace detail
}  // namespace accelerate
