#include "tracking/run_folder.h"

#include <system_error>

#include "tracking/csv_text.h"
#include "tracking/json_text.h"
#include "tracking/output_file.h"
#include "tracking/png.h"

namespace accelerate::tracking {
namespace {

void store(const std::filesystem::path& path, std::string_view bytes) {
  OutputFile file(path, OutputFile::At::kStart);
  file.append(bytes);
  file.close();
}

}  // namespace

std::string file_name_of(std::string_view name) {
  std::string file(name);
  for (char& c : file) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' ||
                          static_cast<unsigned char>(c) >= 0x80;
    if (!is_plain) c = '_';
  }
  if (file.find_first_not_of('.') == std::string::npos) file.insert(0, "_");  // not "..", not ""
  return file;
}

std::filesystem::path media_name(const char* folder, std::string_view name, const TrackedStep& at,
                                 std::string_view extension) {
  std::string file = file_name_of(name);
  if (at.step) file += '_' + std::to_string(*at.step);
  return std::filesystem::path(folder) / (file + '.' + file_name_of(extension));
}

std::filesystem::path artifact_path(const TrackedArtifact& artifact) {
  std::filesystem::path path;
  for (const auto& part : std::filesystem::path(artifact.artifact_path)) {
    if (part != "/" && !part.empty()) path /= file_name_of(part.string());
  }
  return path / file_name_of(artifact.path.filename().string());
}

std::string table_json(const TrackedTable& table) {
  std::string json = "{";
  append_json_key(json, "columns");
  json += '[';
  for (const std::string& column : table.columns) {
    if (json.back() != '[') json += ',';
    append_json_text(json, column);
  }
  json += ']';
  append_json_key(json, "data");
  json += '[';
  for (const auto& row : table.rows) {
    if (json.back() != '[') json += ',';
    json += '[';
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) json += ',';
      append_json_value(json, row[i]);
    }
    json += ']';
  }
  return json + "]}";
}

std::filesystem::path store_image(const std::filesystem::path& run, const TrackedImage& image,
                                  const TrackedStep& at) {
  const auto path = media_name("images", image.name, at, "png");
  store(run / path, png_of(image));
  return path;
}

std::filesystem::path store_figure(const std::filesystem::path& run, const TrackedFigure& figure,
                                   const TrackedStep& at) {
  const auto path = media_name("figures", figure.name, at, figure.extension);
  store(run / path, figure.bytes);
  return path;
}

std::filesystem::path store_table(const std::filesystem::path& run, const TrackedTable& table,
                                  const TrackedStep& at) {
  const auto path = media_name("tables", table.name, at, "csv");
  std::string csv;
  append_csv_row(csv, table.columns);
  for (const auto& row : table.rows) {
    CsvRow cells;
    for (const TrackedValue& value : row) cells.push_back(plain_text(value));
    append_csv_row(csv, cells);
  }
  store(run / path, csv);
  return path;
}

void copy_artifact(const std::filesystem::path& from, const std::filesystem::path& to) {
  make_folders(to.parent_path());
  std::error_code error;
  std::filesystem::copy(
      from, to,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing,
      error);
  if (!error) return;
  throw TrackerError(
      {.what = "the artifact cannot be copied to " + to.string() + ": " + error.message(),
       .where = from.string(),
       .hint = "log an artifact once its file is written, and keep it until "
               "end_training()"});
}

std::filesystem::path store_artifact(const std::filesystem::path& run,
                                     const TrackedArtifact& artifact) {
  const auto path = "artifacts" / artifact_path(artifact);
  copy_artifact(artifact.path, run / path);
  return path;
}

void put_aside(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  for (int number = 1;; ++number) {
    std::filesystem::path aside = path;
    aside.replace_extension("." + std::to_string(number) + path.extension().string());
    if (std::filesystem::exists(aside, error)) continue;
    std::filesystem::rename(path, aside, error);
    if (!error) return;
    throw TrackerError({.what = "the file of an earlier run cannot be renamed: " + error.message(),
                        .where = path.string(),
                        .hint = "remove it, or set another logging_dir"});
  }
}

}  // namespace accelerate::tracking
