#include "monitor/server/view_json.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace accelerate::monitor {
namespace {

using Json = nlohmann::ordered_json;

// Seven digits are more than anybody sees in a curve, and half the bytes.
Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0;
  const double scale = std::pow(10.0, 6 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) && scale != 0 ? std::round(value * scale) / scale : value;
}

Json millis(double seconds) { return std::round(seconds * 1000) / 1000; }

Json json_of(const Point& point) {
  Json list = Json::array({number(point.step), millis(point.seconds), number(point.value)});
  if (point.weight > 1) {
    list.push_back(number(point.least));
    list.push_back(number(point.most));
  }
  return list;
}

class CurveWriter {
 public:
  explicit CurveWriter(Told& told) : told_(told) {}

  // Begins with the last point that was told, if that has changed since.
  void add(const std::string& name, const Series& series) {
    Told::Curve& known = told_.curves[name];
    const auto& points = series.points();
    if (known.generation != series.generation() || known.points > points.size()) {
      known = {.generation = series.generation()};
    }
    size_t from = known.points;
    if (from > 0 && points[from - 1].weight != known.last_weight) --from;
    if (from == points.size()) return;
    Json list = Json::array();
    for (size_t i = from; i < points.size(); ++i) list.push_back(json_of(points[i]));
    curves_[name] = {{"from", from}, {"points", std::move(list)}};
    known.points = points.size();
    known.last_weight = points.back().weight;
  }
  Json take() { return std::move(curves_); }

 private:
  Told& told_;
  Json curves_ = Json::object();
};

Json json_of(const RankView& rank) {
  Json parts = Json::object();
  for (const auto& [name, seconds] : rank.parts) parts[name] = number(seconds * 1e3);
  return {{"rank", rank.rank},
          {"state", name_of(rank.state)},
          {"machine", rank.machine},
          {"host", rank.host},
          {"pid", rank.pid},
          {"restarts", rank.restarts},
          {"ended", rank.ended},
          {"steps", rank.steps},
          {"step_ms", number(rank.step_seconds * 1e3)},
          {"samples", number(rank.samples_per_second)},
          {"parts", std::move(parts)},
          {"activity", rank.activity},
          {"operation", rank.operation},
          {"since", millis(rank.since)},
          {"processors", number(rank.processors)},
          {"memory", rank.memory_bytes},
          {"lost_events", rank.lost_events},
          {"lost_values", rank.lost_values},
          {"lines", rank.lines}};
}

Json json_of(const DeviceView& device) {
  const bool is_gpu = device.kind == run_record::DeviceKind::kGpu;
  return {{"kind", is_gpu ? "gpu" : "machine"},
          {"index", device.index},
          {"host", device.host},
          {"name", device.name},
          {"memory", device.memory_bytes},
          {"used", device.used_bytes},
          {"busy", number(device.busy)},
          {"watts", number(device.watts)},
          {"celsius", number(device.celsius)}};
}

Json json_of(const CheckpointView& checkpoint) {
  return {{"rank", checkpoint.rank},
          {"began", millis(checkpoint.began)},
          {"seconds", millis(checkpoint.seconds)},
          {"open", checkpoint.is_open},
          {"failed", checkpoint.failed},
          {"what", checkpoint.what}};
}

template <class List>
Json list_of(const List& list) {
  Json items = Json::array();
  for (const auto& item : list) items.push_back(json_of(item));
  return items;
}

void add_settings(const RunView& view, Told& told, Json& json) {
  if (told.settings == view.settings().size()) return;
  told.settings = view.settings().size();
  Json settings = Json::array();
  for (const run_record::Setting& setting : view.settings()) {
    settings.push_back({{"name", setting.name},
                        {"value", setting.value},
                        {"source", setting.source},
                        {"given", setting.is_given}});
  }
  json["settings"] = std::move(settings);
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string run_json(const RunFolder& run, Told& told) {
  const RunView& view = run.view();
  CurveWriter curves(told);
  for (const auto& [name, series] : view.values()) curves.add("value:" + name, series);
  for (const auto& [name, series] : view.parts()) curves.add("part:" + name, series);
  curves.add("step_time", view.step_time());
  curves.add("throughput", view.throughput());
  for (size_t i = 0; i < view.devices().size(); ++i) {
    const std::string device = "device:" + std::to_string(i);
    curves.add(device + ":busy", view.devices()[i].busy_curve);
    curves.add(device + ":memory", view.devices()[i].memory_curve);
  }
  Json ranks = Json::array();
  for (const auto& [number, rank] : view.ranks()) ranks.push_back(json_of(rank));
  Json json = {{"run", run.name()},
               {"whole", told.is_new},
               {"state", name_of(view.state())},
               {"silent", run.is_silent()},
               {"now", millis(unix_now())},
               {"began", millis(view.began())},
               {"heard", millis(view.last_heard())},
               {"program", view.program()},
               {"host", view.host()},
               {"world", view.world_size()},
               {"restarts", view.restarts()},
               {"exit", view.exit_code() ? Json(*view.exit_code()) : Json(nullptr)},
               {"knows_samples", view.knows_samples()},
               {"problems", view.problems()},
               {"ranks", std::move(ranks)},
               {"devices", list_of(view.devices())},
               {"checkpoints", list_of(view.checkpoints())},
               {"curves", curves.take()}};
  add_settings(view, told, json);
  told.is_new = false;
  return dumped(json);
}

std::string names_json(const std::vector<std::string>& names, const std::string& first,
                       const std::string& version) {
  return dumped(Json{{"runs", names}, {"first", first}, {"version", version}});
}

}  // namespace accelerate::monitor
