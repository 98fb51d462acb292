#include "core/process/step_aggregator.h"

#include <algorithm>

namespace accelerate {
namespace {

constexpr size_t kMostOpenSpans = 256;

uint64_t microseconds_between(int64_t from_ns, int64_t to_ns) {
  return to_ns > from_ns ? static_cast<uint64_t>((to_ns - from_ns) / 1000) : 0;
}

// "": no part of a step.
std::string_view part_of_span(std::string_view span) {
  if (span == kDataSpan) return kDataPart;
  if (span == kForwardSpan) return kForwardPart;
  if (span == kProfilerSpan) return kProfilerPart;
  return span == kBackwardSpan ? kBackwardPart : "";
}

}  // namespace

void StepAggregator::add_part(std::string_view name, int64_t from_ns, int64_t to_ns) {
  pending_.parts[name] += microseconds_between(from_ns, to_ns);
}

std::optional<StepAggregator::Done> StepAggregator::take(const Event& event) {
  if (first_ns_ == 0) first_ns_ = event.time_ns;
  const bool begins_step =
      event.kind == EventKind::kSpanBegin && !part_of_span(event.text()).empty();
  if (begins_step) begin_step(event.time_ns);
  switch (event.kind) {
    case EventKind::kSpanBegin:
      if (event.text() == kOptimizerSpan) {
        optimizer_since_ = event.time_ns;
        break;
      }
      if (event.text() == kBackwardSpan && event.number > 0) {
        pending_.steps.samples += static_cast<uint64_t>(event.number);
      }
      if (part_of_span(event.text()).empty()) break;
      [[fallthrough]];
    case EventKind::kCheckpointBegin:
      if (open_spans_.size() < kMostOpenSpans) {
        OpenSpan& open = open_spans_[{event.thread, std::string(event.text())}];
        if (open.depth++ == 0) open.since_ns = event.time_ns;
      }
      break;
    case EventKind::kSpanEnd:
    case EventKind::kCheckpointEnd: {
      if (event.kind == EventKind::kSpanEnd && event.text() == kOptimizerSpan) {
        if (optimizer_since_ != 0) add_part(kOptimizerPart, optimizer_since_, event.time_ns);
        optimizer_since_ = 0;
        if (std::exchange(waits_for_optimizer_, false)) return end_step(event.time_ns);
        break;
      }
      const std::string_view part =
          event.kind == EventKind::kCheckpointEnd ? kCheckpointPart : part_of_span(event.text());
      if (part.empty()) break;  // of a span that is no part of a step
      const auto open = open_spans_.find({event.thread, std::string(event.text())});
      if (open == open_spans_.end() || --open->second.depth > 0) break;
      add_part(part, open->second.since_ns, event.time_ns);
      open_spans_.erase(open);
      break;
    }
    case EventKind::kWaitBegin:
      if (event.exchange != 0 && open_exchanges_++ == 0) exchange_since_ = event.time_ns;
      break;
    case EventKind::kWaitEnd:
      // An end does not say of which exchange it is; those of other waits are rare.
      if (open_exchanges_ > 0 && --open_exchanges_ == 0 && step_began_ns_ != 0) {
        add_part(kExchangePart, std::max(exchange_since_, step_began_ns_), event.time_ns);
      }
      break;
    case EventKind::kStep:
      steps_ = std::max(steps_ + 1, event.number);
      if (optimizer_since_ == 0) return end_step(event.time_ns);
      waits_for_optimizer_ = true;
      break;
    default:
      break;
  }
  return std::nullopt;
}

std::optional<StepAggregator::Done> StepAggregator::end_step(int64_t now_ns) {
  if (step_began_ns_ == 0) step_began_ns_ = now_ns;
  const uint64_t took = microseconds_between(step_began_ns_, now_ns);
  step_began_ns_ = now_ns;
  if (open_exchanges_ > 0) {
    add_part(kExchangePart, exchange_since_, now_ns);
    exchange_since_ = now_ns;
  }
  run_record::Steps& steps = pending_.steps;
  steps.count = pending_.end_ns == 0 ? 1 : steps.count + 1;
  steps.last = static_cast<uint64_t>(steps_);
  steps.total_us += took;
  steps.longest_us = std::max(steps.longest_us, took);
  pending_.end_ns = now_ns;
  return flush(now_ns);
}

std::optional<StepAggregator::Done> StepAggregator::flush(int64_t now_ns, bool by_force) {
  if (pending_.end_ns == 0) return std::nullopt;
  if (records_ == Records::kOfEachStep) return std::exchange(pending_, Done{});
  const int64_t window = now_ns - first_ns_ < kFirstMinutes ? kShortWindow : kLongWindow;
  const int64_t began_ns = pending_.end_ns - static_cast<int64_t>(pending_.steps.total_us) * 1000;
  if (!by_force && now_ns - began_ns < window) return std::nullopt;
  return std::exchange(pending_, Done{});
}

void StepAggregator::forget_open() {
  open_spans_.clear();
  open_exchanges_ = 0;
  optimizer_since_ = 0;
  waits_for_optimizer_ = false;
}

}  // namespace accelerate
