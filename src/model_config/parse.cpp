#include "model_config/parse.h"

#include "accelerate/errors.h"
#include "base/lfs_pointer.h"
#include "files/strict_json.h"

namespace accelerate::model_config {

nlohmann::json parse_config(std::string_view text, const std::string& where) {
  const auto refuse = [&where](const std::string& what) {
    throw DataError({.what = what, .where = where});
  };
  if (is_lfs_pointer(text)) {
    throw DataError({.what = kLfsPointer, .where = where, .hint = kLfsHint});
  }
  return files::parse_json_object(text, {.not_json =
                                             [&](const std::string& complaint) {
                                               refuse("the file is not valid JSON: " + complaint);
                                             },
                                         .not_acceptable =
                                             [&](const std::string& what) {
                                               refuse("this is not a valid configuration: " + what);
                                             }});
}

}  // namespace accelerate::model_config
