#include "base/rank_report.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <sstream>
#include <string_view>

namespace accelerate {
namespace {

constexpr char kFieldEnd = '\t';

// One line of fields, the first of which says what it is.
class ReportLine {
 public:
  explicit ReportLine(std::string_view kind) : text_(kind) {}

  ReportLine& add(std::string_view field) {
    text_ += kFieldEnd;
    for (const char c : field) {
      const bool is_control = static_cast<unsigned char>(c) < ' ' || c == 127;
      text_ += is_control ? ' ' : c;
    }
    return *this;
  }
  ReportLine& add(int64_t number) { return add(std::to_string(number)); }
  ReportLine& add(RankReport::Age age) { return add(age.count()); }
  std::string text() const { return text_ + '\n'; }

 private:
  std::string text_;
};

// Reads such a line from its front.
class ReportFields {
 public:
  explicit ReportFields(std::string_view line) : rest_(line) {}

  std::string text() {
    const size_t end = rest_.find(kFieldEnd);
    const std::string field(rest_.substr(0, end));
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    // Whatever it came from: no control character reaches a terminal.
    std::string harmless = field;
    std::replace_if(
        harmless.begin(), harmless.end(),
        [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, ' ');
    return harmless;
  }
  int64_t number() {
    const std::string field = text();
    int64_t value = 0;
    std::from_chars(field.data(), field.data() + field.size(), value);
    return value;
  }
  RankReport::Age age() { return RankReport::Age(number()); }

 private:
  std::string_view rest_;
};

void add_activities(std::string& text, std::string_view kind,
                    const std::vector<RankReport::Activity>& activities) {
  for (const auto& each : activities) {
    text += ReportLine(kind).add(each.age).add(each.group).add(each.sequence).add(each.text).text();
  }
}

RankReport::Activity read_activity(ReportFields& fields) {
  RankReport::Activity activity;
  activity.age = fields.age();
  activity.group = fields.text();
  activity.sequence = fields.number();
  activity.text = fields.text();
  return activity;
}

RankReport::Group read_group(ReportFields& fields) {
  RankReport::Group group;
  group.name = fields.text();
  group.among = fields.text();
  group.sequence = fields.number();
  group.finished = fields.number() != 0;
  group.age = fields.age();
  group.operation = fields.text();
  return group;
}

RankReport::Entry read_entry(ReportFields& fields) {
  RankReport::Entry entry;
  entry.age = fields.age();
  entry.what = fields.text();
  entry.group = fields.text();
  entry.number = fields.number();
  entry.text = fields.text();
  return entry;
}

}  // namespace

std::string RankReport::encode() const {
  std::string all = ReportLine("process").add(host).add(pid).text();
  all += ReportLine("waited").add(waited).add(log_time).text();
  if (step_age) all += ReportLine("step").add(steps).add(*step_age).text();
  add_activities(all, "wait", waits);
  add_activities(all, "inside", inside);
  for (const Group& each : groups) {
    all += ReportLine("group")
               .add(each.name)
               .add(each.among)
               .add(each.sequence)
               .add(each.finished ? 1 : 0)
               .add(each.age)
               .add(each.operation)
               .text();
  }
  for (const Entry& each : log) {
    all += ReportLine("log")
               .add(each.age)
               .add(each.what)
               .add(each.group)
               .add(each.number)
               .add(each.text)
               .text();
  }
  return all;
}

RankReport RankReport::decode(const std::string& text) {
  RankReport report;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    ReportFields fields(line);
    const std::string kind = fields.text();
    if (kind == "process") {
      report.host = fields.text();
      report.pid = fields.number();
    } else if (kind == "waited") {
      report.waited = fields.age();
      report.log_time = fields.age();
    } else if (kind == "step") {
      report.steps = fields.number();
      report.step_age = fields.age();
    } else if (kind == "wait") {
      report.waits.push_back(read_activity(fields));
    } else if (kind == "inside") {
      report.inside.push_back(read_activity(fields));
    } else if (kind == "group") {
      report.groups.push_back(read_group(fields));
    } else if (kind == "log") {
      report.log.push_back(read_entry(fields));
    }
  }
  return report;
}

std::string log_text(const RankReport& report, size_t most) {
  std::string text;
  const size_t first = report.log.size() > most ? report.log.size() - most : 0;
  for (size_t i = first; i < report.log.size(); ++i) {
    const RankReport::Entry& entry = report.log[i];
    char age[32];
    std::snprintf(age, sizeof age, "%10.3f s", static_cast<double>(entry.age.count()) / 1000.0);
    text += age;
    text += "  ";
    if (!entry.group.empty()) text += entry.group + " ";
    if (entry.number != 0) text += "#" + std::to_string(entry.number) + " ";
    text += entry.what;
    if (!entry.text.empty()) text += " " + entry.text;
    text += '\n';
  }
  return text;
}

std::string waited_text(RankReport::Age age) {
  const int64_t seconds = age.count() / 1000;
  if (seconds >= 60) {
    return std::to_string(seconds / 60) + " min " + std::to_string(seconds % 60) + " s";
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(age.count()) / 1000.0);
  return text;
}

}  // namespace accelerate
