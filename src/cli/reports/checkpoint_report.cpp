#include "cli/reports/checkpoint_report.h"

#include <algorithm>
#include <chrono>

#include "accelerate/errors.h"
#include "base/printable_text.h"
#include "cli/reports/text_table.h"
#include "files/durable/checksum.h"
#include "files/durable/system_calls.h"

namespace accelerate::cli {
namespace {

using files::CheckpointEntry;
using files::FileRecord;
using files::Manifest;
using files::PartRecord;
using nlohmann::json;

constexpr size_t kNameWidth = 100;
constexpr size_t kPathWidth = 4096;

uint64_t bytes_of(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const FileRecord& file : manifest.files) bytes += file.bytes;
  return bytes;
}

std::string age_of(const Manifest& manifest) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return age_text(std::chrono::duration_cast<std::chrono::seconds>(now).count() - manifest.created);
}

std::string counted(size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string state_of(const CheckpointEntry& entry) {
  return entry.is_complete() ? "complete" : "INCOMPLETE: " + printable_text(entry.problem);
}

std::string shape_text(const std::vector<int64_t>& shape) { return json(shape).dump(); }

// What every kind of JSON says about a checkpoint.
json json_of(const CheckpointEntry& entry) {
  json value{{"name", entry.name},
             {"directory", entry.directory.string()},
             {"complete", entry.is_complete()}};
  if (!entry.is_complete()) value["problem"] = entry.problem;
  if (entry.manifest) {
    value["step"] = entry.manifest->step;
    value["world_size"] = entry.manifest->world_size;
    value["created"] = entry.manifest->created;
    value["library_version"] = entry.manifest->library_version;
    value["bytes"] = bytes_of(*entry.manifest);
  }
  return value;
}

// Names on the disk need not be UTF-8, JSON must be.
std::string json_text(const json& value) {
  return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string tensors_text(const FileRecord& file) {
  const auto is_shard = [](const PartRecord& part) { return part.shard.has_value(); };
  const bool has_shards = std::any_of(file.parts.begin(), file.parts.end(), is_shard);
  std::vector<Align> columns{Align::kLeft, Align::kLeft, Align::kLeft, Align::kRight};
  std::vector<std::string> heading{"TENSOR", "DTYPE", "SHAPE", "SIZE"};
  if (has_shards) {
    columns.push_back(Align::kLeft);
    heading.emplace_back("PART OF");
  }
  TextTable table(columns, 2);
  table.add(heading);
  for (const PartRecord& part : file.parts) {
    std::vector<std::string> row{
        printable_text(part.name, kNameWidth), part.dtype.empty() ? "-" : part.dtype,
        part.dtype.empty() ? "-" : shape_text(part.shape), size_text(part.bytes)};
    if (has_shards) {
      row.push_back(part.shard ? shape_text(part.shard->global_shape) + " from " +
                                     shape_text(part.shard->start)
                               : "");
    }
    table.add(row);
  }
  return table.text();
}

std::string show_text(const CheckpointEntry& entry) {
  TextTable facts({Align::kLeft, Align::kLeft});
  facts.add({"checkpoint", printable_text(entry.directory.string(), kPathWidth)});
  facts.add({"state", state_of(entry)});
  if (!entry.manifest) return facts.text();
  const Manifest& manifest = *entry.manifest;
  facts.add({"step", std::to_string(manifest.step)});
  facts.add({"world size", std::to_string(manifest.world_size)});
  facts.add({"size", size_text(bytes_of(manifest))});
  facts.add({"age", age_of(manifest)});
  facts.add({"library", manifest.library_version});

  TextTable files({Align::kLeft, Align::kRight, Align::kRight, Align::kLeft});
  files.add({"FILE", "SIZE", "TENSORS", "XXH3"});
  for (const FileRecord& file : manifest.files) {
    files.add({printable_text(file.name, kNameWidth), size_text(file.bytes),
               std::to_string(file.parts.size()), files::checksum_text(file.checksum)});
  }
  std::string text = facts.text() + "\n" + files.text();
  for (const FileRecord& file : manifest.files) {
    if (!file.parts.empty()) text += "\n" + file.name + "\n" + tensors_text(file);
  }
  return text;
}

json show_json(const CheckpointEntry& entry) {
  json value = json_of(entry);
  if (!entry.manifest) return value;
  value["state"] = entry.manifest->state;
  value["files"] = json::parse(files::records_text(entry.manifest->files));
  return value;
}

struct Verified {
  CheckpointEntry entry;
  std::vector<files::Finding> findings{};
  bool is_deleted = false;  // by the job that saves here: nothing is wrong with that
};

// Since the checkpoint was listed it may have been replaced, repaired or deleted: what is said of
// it is what verifying has seen.
Verified verify_entry(const CheckpointEntry& listed) {
  Verified result{.entry = listed};
  try {
    files::Verification seen = files::verify_checkpoint(listed.directory);
    result.entry.manifest = std::move(seen.manifest);
    result.findings = std::move(seen.findings);
  } catch (const CheckpointError& error) {
    result.findings = {{.file = listed.name, .what = error.message()}};
  }
  if (result.findings.empty()) result.entry.problem.clear();
  result.is_deleted = !result.findings.empty() && !files::leads_to_directory(listed.directory);
  return result;
}

}  // namespace

CheckpointReport list_report(const std::vector<CheckpointEntry>& entries, bool as_json) {
  CheckpointReport report;
  json values = json::array();
  TextTable table(
      {Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  table.add({"CHECKPOINT", "STEP", "RANKS", "SIZE", "AGE", "STATE"});
  for (const CheckpointEntry& entry : entries) {
    report.all_complete = report.all_complete && entry.is_complete();
    values.push_back(json_of(entry));
    const auto fact = [&](auto text) { return entry.manifest ? text(*entry.manifest) : "-"; };
    table.add({printable_text(entry.name, kNameWidth),
               fact([](const Manifest& manifest) { return std::to_string(manifest.step); }),
               fact([](const Manifest& manifest) { return std::to_string(manifest.world_size); }),
               fact([](const Manifest& manifest) { return size_text(bytes_of(manifest)); }),
               fact(age_of), state_of(entry)});
  }
  report.text = as_json ? json_text(values) : table.text();
  return report;
}

CheckpointReport verify_report(const std::vector<CheckpointEntry>& entries, bool as_json) {
  CheckpointReport report;
  json values = json::array();
  std::string text;
  for (const CheckpointEntry& listed : entries) {
    const Verified verified = verify_entry(listed);
    json value = json_of(verified.entry);
    value["findings"] = json::array();
    text += printable_text(listed.name, kNameWidth);
    if (verified.is_deleted) {
      value["deleted"] = true;
      text += ": deleted meanwhile\n";
      values.push_back(value);
      continue;
    }
    const std::vector<files::Finding>& findings = verified.findings;
    report.all_complete = report.all_complete && findings.empty();
    if (findings.empty()) {
      const Manifest& manifest = *verified.entry.manifest;
      text += ": good, " + counted(manifest.files.size(), "file") + ", " +
              size_text(bytes_of(manifest)) + "\n";
    } else {
      text += ": DAMAGED\n";
    }
    for (const files::Finding& finding : findings) {
      text += "  " + printable_text(finding.text()) + "\n";
      value["findings"].push_back(
          {{"file", finding.file}, {"tensor", finding.tensor}, {"what", finding.what}});
    }
    values.push_back(value);
  }
  report.text = as_json ? json_text(values) : text;
  return report;
}

CheckpointReport show_report(const std::vector<CheckpointEntry>& entries, bool as_json) {
  CheckpointReport report;
  json values = json::array();
  std::string text;
  for (const CheckpointEntry& entry : entries) {
    report.all_complete = report.all_complete && entry.is_complete();
    text += (text.empty() ? "" : "\n") + show_text(entry);
    values.push_back(show_json(entry));
  }
  report.text = as_json ? json_text(values) : text;
  return report;
}

}  // namespace accelerate::cli
