#include "transformers/pretrained/loading_report.h"

#include "base/message_text.h"

namespace accelerate::transformers {
namespace {

// Layers repeat: a few names say it all.
constexpr size_t kMostNames = 10;

void add_line(std::string& text, const std::string& title, const std::vector<std::string>& names) {
  if (!names.empty()) text += "\n  " + title + ": " + listed(names, ", ");
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

}  // namespace

std::string listed(const std::vector<std::string>& names, const std::string& separator) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMostNames; ++i) {
    text += (i == 0 ? "" : separator) + shortened(names[i]);
  }
  if (names.size() > kMostNames) {
    text += separator + "... and " + std::to_string(names.size() - kMostNames) + " more";
  }
  return text;
}

std::string mismatch_text(const KeyPlan::OtherShape& mismatch) {
  return mismatch.name + " " + shape_text(mismatch.in_files) + " in the files, " +
         shape_text(mismatch.in_model) + " in the model";
}

PretrainedReport make_report(const std::string& architecture, const std::string& folder,
                             const KeyPlan& plan, const std::vector<std::string>& untied) {
  PretrainedReport report{.missing_keys = plan.missing, .unexpected_keys = plan.unexpected};
  std::vector<std::string> mismatches;
  for (const KeyPlan::OtherShape& each : plan.mismatched) {
    report.mismatched_keys.push_back(each.name);
    mismatches.push_back(mismatch_text(each));
  }
  std::string lines;
  add_line(lines, "newly initialised, because the files do not have them", plan.missing);
  add_line(lines, "newly initialised, because the files have them in another size", mismatches);
  add_line(lines, "in the files, but not used by this model", plan.unexpected);
  add_line(lines, "in the files with values of their own, so not tied to the embeddings", untied);
  if (lines.empty()) return report;
  report.message = architecture + " from " + folder + ":" + lines;
  if (!plan.missing.empty() || !mismatches.empty()) {
    report.message += "\n  Train the model before its predictions are used.";
  }
  return report;
}

}  // namespace accelerate::transformers
