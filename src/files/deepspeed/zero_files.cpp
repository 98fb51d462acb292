#include "files/deepspeed/zero_files.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/durable/system_calls.h"
#include "files/safetensors/mapped_checkpoint.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLatest = "latest";
constexpr size_t kLongestTag = 255;
constexpr std::string_view kOptimizerSuffix = "_optim_states.pt";
constexpr std::string_view kModelSuffix = "_model_states.pt";

[[noreturn]] void refuse_zero(const fs::path& path, const std::string& what,
                              const std::string& hint) {
  throw CheckpointError({.what = what, .where = path.string(), .hint = hint});
}

bool is_tag_folder(const fs::path& folder) {
  if (!leads_to_directory(folder)) return false;
  const std::vector<std::string> names = entry_names(folder);
  return std::ranges::any_of(names, [](const std::string& name) {
    return name.ends_with(kOptimizerSuffix) || name.ends_with(kModelSuffix);
  });
}

// A tag is the name of a folder beside `latest`: it must not lead elsewhere.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= kLongestTag && name != "." && name != ".." &&
         name.find('/') == name.npos && name.find('\0') == name.npos;
}

std::string latest_tag(const fs::path& folder, Links links) {
  check_model_file(folder, kLatest, folder, links);
  const auto mapped = map_checkpoint_file(folder / kLatest, "the file with the latest tag");
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes as text
  std::string_view text(reinterpret_cast<const char*>(mapped->data()), mapped->size());
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  text = first == text.npos ? "" : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
  if (text.size() <= kLongestTag && is_plain_name(std::string(text))) return std::string(text);
  refuse_zero(folder / kLatest, "it should name a folder beside it, and says " + in_quotes(text),
              "name the folder of the tag itself");
}

// Of "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"; none for other names.
std::optional<size_t> rank_of(std::string_view name, std::string_view suffix) {
  for (const std::string_view prefix : {"bf16_", "fp16_"}) {
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  }
  constexpr std::string_view kStem = "zero_pp_rank_";
  constexpr std::string_view kFirstSlice = "_mp_rank_00";
  if (!name.starts_with(kStem) || !name.ends_with(suffix)) return std::nullopt;
  name = name.substr(kStem.size(), name.size() - kStem.size() - suffix.size());
  if (!name.ends_with(kFirstSlice)) return std::nullopt;
  name.remove_suffix(kFirstSlice.size());
  size_t rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return rank;
}

class ZeroFinder {
 public:
  ZeroFinder(const fs::path& folder, Links links) : links_(links) {
    found_.folder = fs::canonical(folder);
  }

  ZeroFiles find() {
    bool has_common_file = false;
    for (const std::string& name : entry_names(found_.folder)) {
      if (name == "mp_rank_00_model_states.pt") {
        has_common_file = true;
      } else if (name.ends_with(kOptimizerSuffix)) {
        take(name, kOptimizerSuffix, optimizers_);
      } else if (name.ends_with(kModelSuffix)) {
        take(name, kModelSuffix, models_);
      } else if (name.starts_with("layer_") && name.ends_with("model_states.pt")) {
        refuse_parallel(name);
      }
    }
    if (optimizers_.empty()) {
      refuse_zero(found_.folder,
                  "no rank has left the file of its optimizer (*_optim_states.pt), in which the "
                  "float32 weights are",
                  "save with ZeRO stage 1 to 3, or copy all files of the folder");
    }
    if (has_common_file && !models_.empty()) {
      refuse_zero(found_.folder, "it holds the model states of two kinds of checkpoints",
                  "save into an empty folder");
    }
    if (has_common_file) models_.emplace(0, "mp_rank_00_model_states.pt");
    found_.optimizer_states = in_order(optimizers_, "optimizer");
    found_.model_states = in_order(models_, "model");
    if (found_.model_states.size() > 1 &&
        found_.model_states.size() != found_.optimizer_states.size()) {
      refuse_zero(found_.folder,
                  "it has the model states of " + std::to_string(found_.model_states.size()) +
                      " ranks and the optimizer states of " +
                      std::to_string(found_.optimizer_states.size()),
                  "copy all files of the folder");
    }
    return std::move(found_);
  }

 private:
  using Ranks = std::map<size_t, std::string>;

  void take(const std::string& name, std::string_view suffix, Ranks& ranks) const {
    const auto rank = rank_of(name, suffix);
    if (!rank) refuse_parallel(name);
    if (ranks.emplace(*rank, name).second) return;
    refuse_zero(found_.folder / name, "rank " + std::to_string(*rank) + " has two files",
                "save into an empty folder");
  }

  [[noreturn]] void refuse_parallel(const std::string& name) const {
    refuse_zero(found_.folder / name,
                "it belongs to a checkpoint with parallel models or experts, which is not read",
                "convert it with DeepSpeed's ds_to_universal.py");
  }

  std::vector<fs::path> in_order(const Ranks& ranks, const std::string& kind) const {
    std::vector<fs::path> files;
    for (const auto& [rank, name] : ranks) {
      if (rank != files.size()) break;
      check_model_file(found_.folder, name, found_.folder, links_);
      files.push_back(found_.folder / name);
    }
    if (files.empty() || files.size() != ranks.size()) {
      refuse_zero(
          found_.folder,
          "the " + kind + " states of rank " + std::to_string(files.size()) + " are missing",
          "copy all files of the folder");
    }
    return files;
  }

  Links links_;
  ZeroFiles found_;
  Ranks optimizers_;
  Ranks models_;
};

}  // namespace

bool is_deepspeed_folder(const fs::path& folder) {
  if (is_tag_folder(folder)) return true;
  if (entry_kind(folder / kLatest) == EntryKind::kMissing) return false;
  try {
    return is_tag_folder(folder / latest_tag(folder, Links::kFollowed));
  } catch (const CheckpointError&) {
    return false;  // a file of that name that DeepSpeed has not written
  }
}

ZeroFiles find_zero_files(const fs::path& folder, const std::string& tag, Links links) {
  if (!tag.empty() && !is_plain_name(tag)) {
    refuse_zero(folder, in_quotes(tag) + " is not the name of a folder in it",
                "a tag is a name, such as global_step100");
  }
  const bool is_itself = tag.empty() && is_tag_folder(folder);
  const fs::path of_tag =
      is_itself ? folder : folder / (tag.empty() ? latest_tag(folder, links) : tag);
  if (!is_tag_folder(of_tag)) {
    refuse_zero(of_tag, "there is no checkpoint of DeepSpeed", "check folder and tag");
  }
  return ZeroFinder(of_tag, links).find();
}

}  // namespace accelerate::files
