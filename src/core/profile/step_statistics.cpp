#include "core/profile/step_statistics.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>

#include "base/median.h"
#include "base/text_table.h"
#include "core/profile/profile_text.h"

namespace accelerate {
namespace {

constexpr std::array<std::string_view, 7> kPartNames = {
    kDataPart,       kForwardPart,  kBackwardPart, kOptimizerPart,
    kCheckpointPart, kProfilerPart, kExchangePart};
constexpr const char* kRestPart = "rest";

double sum_of_times(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

StepPartTimes part_times(std::string name, const std::vector<double>& values, double all_us) {
  const double sum = sum_of_times(values);
  return {.name = std::move(name),
          .mean_us = sum / static_cast<double>(values.size()),
          .median_us = median_of(values),
          .share = all_us > 0 ? sum / all_us : 0};
}

}  // namespace

void StepStatistics::take(const Event& event) {
  const bool is_mark = event.kind == EventKind::kSpanBegin && event.text().starts_with(kStepMark);
  if (is_mark && !has_begun_ && event.number >= first_step_) {
    has_begun_ = true;
    by_marks_.aggregator.begin_step(event.time_ns);
    if (event.number > 0) by_optimizers_.aggregator.begin_step(event.time_ns);
    return;
  }
  if (!has_begun_) return;
  if (event.kind != EventKind::kStep) by_marks_.take(event);
  by_optimizers_.take(event);
  if (!is_mark) return;
  Event step(EventKind::kStep);
  step.time_ns = event.time_ns;
  step.thread = event.thread;
  by_marks_.take(step);
}

void StepStatistics::forget_open() {
  by_optimizers_.aggregator.forget_open();
  by_marks_.aggregator.forget_open();
}

void StepStatistics::Counted::take(const Event& event) {
  const auto done = aggregator.take(event);
  if (!done) return;
  OneStep step{.total_us = static_cast<float>(done->steps.total_us)};
  for (size_t i = 0; i < kPartNames.size(); ++i) {
    const auto part = done->parts.find(kPartNames[i]);
    if (part != done->parts.end()) step.parts_us[i] = static_cast<float>(part->second);
  }
  if (steps.size() < kMostSteps) {
    steps.push_back(step);
  } else {
    steps[static_cast<size_t>(count) % kMostSteps] = step;
  }
  ++count;
}

StepTimes StepStatistics::times(int rank) const {
  const Counted& counted = by_optimizers_.steps.empty() ? by_marks_ : by_optimizers_;
  StepTimes times{.rank = rank, .steps = counted.count};
  if (counted.steps.empty()) return times;
  std::vector<double> totals;
  for (const OneStep& step : counted.steps) totals.push_back(step.total_us);
  const double all_us = sum_of_times(totals);
  times.mean_us = all_us / static_cast<double>(totals.size());
  times.median_us = median_of(totals);
  times.longest_us = *std::max_element(totals.begin(), totals.end());
  std::vector<double> rest = totals;
  for (size_t i = 0; i < kParts; ++i) {
    const bool is_beside = kPartNames[i] == kExchangePart;
    std::vector<double> values;
    for (size_t step = 0; step < counted.steps.size(); ++step) {
      values.push_back(counted.steps[step].parts_us[i]);
      if (!is_beside) rest[step] = std::max(0.0, rest[step] - values.back());
    }
    if (is_beside) times.parts.push_back(part_times(kRestPart, rest, all_us));
    times.parts.push_back(part_times(std::string(kPartNames[i]), values, all_us));
  }
  return times;
}

namespace {

std::string count_of_steps(const StepTimes& times) {
  return std::to_string(times.steps) + (times.steps == 1 ? " step" : " steps");
}

std::string one_rank_table(const StepTimes& times) {
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight}, 2);
  table.add({"part", "mean", "median", "share"});
  for (const StepPartTimes& part : times.parts) {
    if (part.mean_us == 0) continue;
    const bool is_beside = part.name == kExchangePart;
    table.add({is_beside ? "exchange, beside these" : part.name, profile_time(part.mean_us),
               profile_time(part.median_us), profile_share(part.share, 1)});
  }
  return "rank " + std::to_string(times.rank) + ": " + count_of_steps(times) + " of " +
         profile_time(times.mean_us) + " (median " + profile_time(times.median_us) + ", longest " +
         profile_time(times.longest_us) + ")\n" + table.text();
}

// Of one part, a row with all ranks.
struct PartRow {
  std::string name;
  std::function<double(const StepTimes&)> time_of;
};

void add_part_row(TextTable& table, const PartRow& part, const std::vector<StepTimes>& ranks) {
  std::vector<std::string> row{part.name};
  const StepTimes* slowest = &ranks.front();
  for (const StepTimes& rank : ranks) {
    row.push_back(profile_time(part.time_of(rank)));
    if (part.time_of(rank) > part.time_of(*slowest)) slowest = &rank;
  }
  row.push_back("rank " + std::to_string(slowest->rank));
  if (part.time_of(*slowest) > 0) table.add(std::move(row));
}

}  // namespace

std::string step_table(const std::vector<StepTimes>& ranks) {
  if (ranks.empty()) return "";
  if (ranks.size() == 1) return one_rank_table(ranks.front());
  std::vector<Align> columns(ranks.size() + 1, Align::kRight);
  columns.front() = Align::kLeft;
  columns.push_back(Align::kLeft);
  TextTable table(columns, 2);
  std::vector<std::string> heading{"mean of a step"};
  for (const StepTimes& rank : ranks) heading.push_back("rank " + std::to_string(rank.rank));
  heading.emplace_back("most on");
  table.add(std::move(heading));
  for (size_t i = 0; i < ranks.front().parts.size(); ++i) {
    const std::string name = ranks.front().parts[i].name;
    add_part_row(table,
                 {.name = name == kExchangePart ? "exchange, beside these" : name,
                  .time_of =
                      [i](const StepTimes& times) {
                        return i < times.parts.size() ? times.parts[i].mean_us : 0;
                      }},
                 ranks);
  }
  add_part_row(table,
               {.name = "step", .time_of = [](const StepTimes& times) { return times.mean_us; }},
               ranks);
  return count_of_steps(ranks.front()) + "\n" + table.text();
}

}  // namespace accelerate
