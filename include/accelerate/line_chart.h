// A chart of a few curves as SVG, such as the loss of a run: for notebooks and reports.
//
//   accelerate::LineChart chart("Fashion-MNIST", {.x_label = "step", .y_label = "loss"});
//   chart.add("training", losses);
//   accelerate::display(chart);               // in a notebook
//   std::ofstream("loss.svg") << chart.svg();  // anywhere
#pragma once

#include <string>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/notebook_display.h"

namespace accelerate {

struct LineChartOptions {
  std::string x_label{};
  std::string y_label{};
  int width = 640;  // in pixels
  int height = 320;
};

class ACCELERATE_EXPORT LineChart {
 public:
  explicit LineChart(std::string title = {}, LineChartOptions options = {});

  // Another curve, at x = 1, 2, 3 … or at `x`. A value that is not finite leaves a gap. Throws
  // UsageError if `x` and `y` differ in length.
  LineChart& add(std::string name, std::vector<double> y);
  LineChart& add(std::string name, std::vector<double> x, std::vector<double> y);

  std::string svg() const;
  MimeBundle mime_bundle() const;  // what display() shows

 private:
  struct Curve {
    std::string name{};
    std::vector<double> x{};
    std::vector<double> y{};
  };

  std::string title_;
  LineChartOptions options_;
  std::vector<Curve> curves_;
};

}  // namespace accelerate
