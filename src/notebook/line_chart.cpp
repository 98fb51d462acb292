#include "accelerate/line_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

constexpr int kLeft = 64;
constexpr int kRight = 16;
constexpr int kTop = 36;
constexpr int kBottom = 48;
constexpr int kTicks = 5;
constexpr std::array<const char*, 6> kCurveColours{"#2563eb", "#dc2626", "#059669",
                                                   "#d97706", "#7c3aed", "#0891b2"};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void widen_if_empty() {
    if (low > high) *this = {.low = 0, .high = 1};
    if (low == high) *this = {.low = low - 0.5, .high = high + 0.5};
  }
};

std::string chart_number(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string pixels(double value) { return chart_number("%.1f", value); }

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else {
      result += c;
    }
  }
  return result;
}

// 1, 2 or 5 times a power of ten.
double tick_distance(const Range& range) {
  const double rough = (range.high - range.low) / kTicks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (rough <= step * power) return step * power;
  }
  return 10 * power;
}

std::vector<double> ticks_of(const Range& range) {
  const double distance = tick_distance(range);
  std::vector<double> ticks;
  for (double at = std::ceil(range.low / distance); at * distance <= range.high + distance * 1e-9;
       ++at) {
    ticks.push_back(at * distance + 0.0);  // no "-0"
  }
  return ticks;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const std::string& more = {}) {
  return "<text x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" text-anchor=\"" + anchor + "\"" +
         more + ">" + escaped(text) + "</text>\n";
}

std::string line_between(double x1, double y1, double x2, double y2) {
  return "<line x1=\"" + pixels(x1) + "\" y1=\"" + pixels(y1) + "\" x2=\"" + pixels(x2) +
         "\" y2=\"" + pixels(y2) + "\" stroke=\"#8888\" stroke-width=\"0.5\"/>\n";
}

// Maps values to pixels.
struct Scale {
  Range range;
  double first;
  double last;

  double operator()(double value) const {
    return first + (value - range.low) / (range.high - range.low) * (last - first);
  }
};

bool is_drawn(double x, double y) { return std::isfinite(x) && std::isfinite(y); }

std::string path_of(const std::vector<double>& x, const std::vector<double>& y, const Scale& to_x,
                    const Scale& to_y) {
  std::string path;
  bool pen_is_down = false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (is_drawn(x[i], y[i])) {
      path += (pen_is_down ? "L" : "M") + pixels(to_x(x[i])) + " " + pixels(to_y(y[i]));
    }
    pen_is_down = is_drawn(x[i], y[i]);
  }
  return path;
}

}  // namespace

LineChart::LineChart(std::string title, LineChartOptions options)
    : title_(std::move(title)), options_(std::move(options)) {}

LineChart& LineChart::add(std::string name, std::vector<double> y) {
  std::vector<double> x(y.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i + 1);
  return add(std::move(name), std::move(x), std::move(y));
}

LineChart& LineChart::add(std::string name, std::vector<double> x, std::vector<double> y) {
  if (x.size() != y.size()) {
    throw UsageError({.what = "the curve '" + name + "' has " + std::to_string(x.size()) +
                              " values of x and " + std::to_string(y.size()) + " of y"});
  }
  curves_.push_back({std::move(name), std::move(x), std::move(y)});
  return *this;
}

std::string LineChart::svg() const {
  Range x_range;
  Range y_range;
  for (const Curve& curve : curves_) {
    for (size_t i = 0; i < curve.x.size(); ++i) {
      if (!is_drawn(curve.x[i], curve.y[i])) continue;
      x_range.include(curve.x[i]);
      y_range.include(curve.y[i]);
    }
  }
  x_range.widen_if_empty();
  y_range.widen_if_empty();
  const double width = options_.width;
  const double height = options_.height;
  const Scale to_x{x_range, kLeft, width - kRight};
  const Scale to_y{y_range, height - kBottom, kTop};

  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
                    std::to_string(options_.width) + "\" height=\"" +
                    std::to_string(options_.height) + "\" viewBox=\"0 0 " +
                    std::to_string(options_.width) + " " + std::to_string(options_.height) +
                    "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#777\">\n";
  svg += text_at(width / 2, kTop - 16.0, "middle", title_, " font-size=\"14\"");
  for (const double tick : ticks_of(x_range)) {
    svg += line_between(to_x(tick), kTop, to_x(tick), height - kBottom);
    svg += text_at(to_x(tick), height - kBottom + 16, "middle", chart_number("%.6g", tick));
  }
  for (const double tick : ticks_of(y_range)) {
    svg += line_between(kLeft, to_y(tick), width - kRight, to_y(tick));
    svg += text_at(kLeft - 6, to_y(tick) + 4, "end", chart_number("%.6g", tick));
  }
  svg += text_at(width / 2, height - 10, "middle", options_.x_label);
  const std::string middle = pixels(height / 2);
  svg += text_at(14, height / 2, "middle", options_.y_label,
                 " transform=\"rotate(-90 14 " + middle + ")\"");
  double name_x = kLeft + 12;
  for (size_t i = 0; i < curves_.size(); ++i) {
    const std::string colour = kCurveColours[i % kCurveColours.size()];
    svg += "<path d=\"" + path_of(curves_[i].x, curves_[i].y, to_x, to_y) +
           "\" fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"1.5\"/>\n";
    if (curves_[i].name.empty()) continue;
    svg += text_at(name_x, kTop + 14.0, "start", curves_[i].name, " fill=\"" + colour + "\"");
    name_x += 24 + 7.0 * static_cast<double>(curves_[i].name.size());
  }
  return svg + "</svg>\n";
}

MimeBundle LineChart::mime_bundle() const {
  std::string words = title_.empty() ? "chart" : title_;
  for (const Curve& curve : curves_) {
    const auto [low, high] = std::minmax_element(curve.y.begin(), curve.y.end());
    if (low == curve.y.end()) continue;
    words += "\n  " + (curve.name.empty() ? "curve" : curve.name) + ": " +
             std::to_string(curve.y.size()) + " points, " + chart_number("%.6g", *low) + " to " +
             chart_number("%.6g", *high);
  }
  return {{"image/svg+xml", svg()}, {"text/plain", words}};
}

}  // namespace accelerate
