#include "files/durable/file_record.h"

#include "base/printable_text.h"

namespace accelerate::files {

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' && is_printable_ascii(name) &&
         name.find('/') == std::string_view::npos;
}

}  // namespace accelerate::files
