#include "cli/reports/sharding_report.h"

#include <array>
#include <cstdio>

#include "cli/reports/text_table.h"
#include "estimate/training_memory.h"

namespace accelerate::cli {
namespace {

constexpr uint64_t kCountedNumbers = 1'000'000;

std::string bytes_of_number(uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g",
                static_cast<double>(bytes) / static_cast<double>(kCountedNumbers));
  return text.data();
}

}  // namespace

std::string sharding_text(const config::ShardingRequest& request, int ranks,
                          const std::string& precision) {
  const estimate::Dtype dtype = precision == "no" || precision.empty() ? estimate::Dtype::kFloat32
                                                                       : estimate::Dtype::kBfloat16;
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.add({"STRATEGY", "WEIGHTS", "GRADIENTS", "ADAM", "TOGETHER"});
  for (const estimate::Sharding sharding : estimate::all_shardings()) {
    const estimate::TrainingNeed need =
        estimate::training_need({.floats = kCountedNumbers}, 8 * kCountedNumbers, dtype, sharding,
                                static_cast<uint64_t>(ranks));
    const bool is_chosen = static_cast<int>(sharding) == request.stage.value;
    table.add({std::string(is_chosen ? "> " : "  ") + name_of(sharding),
               bytes_of_number(need.weights), bytes_of_number(need.gradients),
               bytes_of_number(need.optimizer), bytes_of_number(need.total())});
  }
  return "\nBytes that each of " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
         " keeps of each parameter (stage " + std::to_string(request.stage.value) + ": " +
         request.stage.place + "):\n" + table.text() +
         "ZeRO-3 also holds the unit in use whole; accelerate estimate-memory MODEL adds it up\n";
}

}  // namespace accelerate::cli
