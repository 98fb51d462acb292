// What trackers that write plain files have in common: the folder of a run, and the pictures and
// tables beside its numbers.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "accelerate/tracker.h"

namespace accelerate::tracking {

// A name as one of a file: letters, digits, "-", "_" and "."; others become "_".
std::string file_name_of(std::string_view name);

// Where such things stand in a run: "images/name_step.png", "artifacts/.../file".
std::filesystem::path media_name(const char* folder, std::string_view name, const TrackedStep& at,
                                 std::string_view extension);
std::filesystem::path artifact_path(const TrackedArtifact& artifact);
// {"columns":[...],"data":[[...],...]}
std::string table_json(const TrackedTable& table);

// Write into a folder of `run` (images, tables, figures, artifacts) and return where, relative to
// `run`. Throw TrackerError if that cannot be done.
std::filesystem::path store_image(const std::filesystem::path& run, const TrackedImage& image,
                                  const TrackedStep& at);
std::filesystem::path store_figure(const std::filesystem::path& run, const TrackedFigure& figure,
                                   const TrackedStep& at);
std::filesystem::path store_table(const std::filesystem::path& run, const TrackedTable& table,
                                  const TrackedStep& at);
std::filesystem::path store_artifact(const std::filesystem::path& run,
                                     const TrackedArtifact& artifact);

// Copies a file, or a folder with all it holds, to `to`.
void copy_artifact(const std::filesystem::path& from, const std::filesystem::path& to);

// Gives the file `path`, if there is one, the first free name with a number: metrics.1.jsonl.
void put_aside(const std::filesystem::path& path);

}  // namespace accelerate::tracking
