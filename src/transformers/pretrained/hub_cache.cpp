#include "transformers/pretrained/hub_cache.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/transformers/pretrained.h"
#include "base/message_text.h"
#include "base/user_folders.h"

namespace accelerate::transformers {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Letters, digits and . _ - only, as names on the hub are; no path by which one could leave.
bool is_plain_name(std::string_view name) {
  if (name.empty() || name == "." || name == "..") return false;
  return std::ranges::all_of(name, [](char letter) {
    const bool alphanumeric = (letter >= '0' && letter <= '9') ||
                              (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    return alphanumeric || letter == '.' || letter == '_' || letter == '-';
  });
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = path.find('/', begin);
    parts.push_back(path.substr(begin, end - begin));
    if (end == path.npos) return parts;
    begin = end + 1;
  }
}

bool is_hub_id(const std::string& name) {
  const std::vector<std::string> parts = parts_of(name);
  return parts.size() <= 2 && std::ranges::all_of(parts, is_plain_name);
}

// The commit that a branch or tag stands for; nothing where the cache has no note of it.
std::optional<std::string> commit_of(const fs::path& repository, const std::string& revision) {
  const fs::path file = repository / "refs" / revision;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  std::string commit;
  std::ifstream(file) >> commit;
  if (is_plain_name(commit) && commit.size() <= 64) return commit;
  throw DataError({.what = "this file of the cache should hold the name of a commit, it holds " +
                           in_quotes(commit),
                   .where = file.string(),
                   .hint = "download the model again"});
}

// What the cache knows of this repository, for a message.
std::string revisions_of(const fs::path& repository) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator each(repository / "refs", error), end; each != end;
       each.increment(error)) {
    if (error) break;
    if (each->is_regular_file(error)) {
      names.push_back(fs::relative(each->path(), repository / "refs", error).string());
    }
  }
  for (fs::directory_iterator each(repository / "snapshots", error), end; each != end;
       each.increment(error)) {
    if (error) break;
    names.push_back(each->path().filename().string());
  }
  std::ranges::sort(names);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

std::string how_to_get(const std::string& name, const std::string& revision) {
  const std::string flag = revision == "main" ? "" : " --revision " + revision;
  return "`hf download " + name + flag +
         "` downloads it; HF_HOME or HF_HUB_CACHE name the folder of the cache";
}

}  // namespace

fs::path hub_cache_folder() {
  if (const auto folder = folder_variable("HF_HUB_CACHE")) return *folder;
  // The name that the variable had once.
  if (const auto folder = folder_variable("HUGGINGFACE_HUB_CACHE")) return *folder;
  return hugging_face_folder() / "hub";
}

bool is_hub_snapshot(const fs::path& folder) {
  std::error_code error;
  fs::path path = fs::weakly_canonical(folder, error);
  if (error) return false;
  if (path.filename().empty()) path = path.parent_path();
  const fs::path snapshots = path.parent_path();
  return snapshots.filename() == "snapshots" &&
         snapshots.parent_path().filename().string().starts_with("models--");
}

fs::path find_pretrained(const std::string& name_or_folder, const std::string& revision) {
  const fs::path given = expanded_path(name_or_folder);
  if (is_folder(given)) return given;
  if (name_or_folder.empty() || !is_hub_id(name_or_folder)) {
    std::error_code error;
    const bool is_file = fs::exists(given, error);
    throw DataError(
        {.what = in_quotes(name_or_folder) +
                 (is_file ? " is a file; name the folder that contains it"
                          : " is not a folder, and cannot be a name on the Hugging Face "
                            "hub"),
         .where = fs::absolute(given, error).string(),
         .hint = "name a folder with config.json and model.safetensors, or a model as "
                 "\"organisation/name\""});
  }
  const std::vector<std::string> parts = parts_of(revision);
  if (!std::ranges::all_of(parts, is_plain_name)) {
    throw UsageError({.what = in_quotes(revision) + " cannot be a branch, a tag or a commit",
                      .where = "revision"});
  }
  std::string folder = "models--" + name_or_folder;
  if (const size_t slash = folder.find('/'); slash != folder.npos) folder.replace(slash, 1, "--");
  const fs::path repository = hub_cache_folder() / folder;
  if (!is_folder(repository)) {
    throw DataError({.what = in_quotes(name_or_folder) +
                             " is neither a folder nor a model in the "
                             "local cache of the Hugging Face hub; nothing is downloaded",
                     .where = repository.string(),
                     .hint = how_to_get(name_or_folder, revision)});
  }
  const fs::path snapshots = repository / "snapshots";
  const std::optional<std::string> noted = commit_of(repository, revision);
  const std::string commit = noted.value_or(revision);
  if (is_plain_name(commit) && is_folder(snapshots / commit)) return snapshots / commit;
  if (noted) {
    throw DataError({.what = "the cache notes that " + in_quotes(revision) + " of " +
                             in_quotes(name_or_folder) + " is the snapshot " + commit +
                             ", but that is not there; it has " +
                             shortened(revisions_of(repository)),
                     .where = (snapshots / commit).string(),
                     .hint = how_to_get(name_or_folder, revision)});
  }
  throw DataError({.what = "the cache has no revision " + in_quotes(revision) + " of " +
                           in_quotes(name_or_folder) + "; it has " +
                           shortened(revisions_of(repository)),
                   .where = snapshots.string(),
                   .hint = how_to_get(name_or_folder, revision)});
}

}  // namespace accelerate::transformers
