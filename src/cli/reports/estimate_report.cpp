#include "cli/reports/estimate_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/printable_text.h"
#include "base/size_in_words.h"
#include "cli/reports/text_table.h"
#include "config/capabilities.h"

namespace accelerate::cli {
namespace {

using estimate::Dtype;
using estimate::DtypeEstimate;
using estimate::EstimateRequest;
using estimate::FitEstimate;
using estimate::MemoryEstimate;
using estimate::Optimizer;
using estimate::RankEstimate;
using nlohmann::ordered_json;

constexpr std::array<Optimizer, 3> kOptimizerColumns{Optimizer::kAdam, Optimizer::kSgd,
                                                     Optimizer::kAdam8bit};

std::string parameter_count_text(uint64_t count) {
  if (count < 1'000'000) return std::to_string(count);
  const bool is_billions = count >= 1'000'000'000;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s",
                static_cast<double>(count) / (is_billions ? 1e9 : 1e6), is_billions ? "G" : "M");
  return text.data();
}

std::string plural(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::vector<Align> right_after_first(size_t columns, size_t left = 1) {
  std::vector<Align> aligns(columns, Align::kRight);
  for (size_t i = 0; i < left; ++i) aligns[i] = Align::kLeft;
  return aligns;
}

std::string head_text(const MemoryEstimate& estimate) {
  std::string text = printable_text(estimate.origin);
  if (!estimate.architecture.empty())
    text += " (" + printable_text(estimate.architecture, 60) + ")";
  return text + "\n" + parameter_count_text(estimate.parameters) + " parameters in " +
         plural(estimate.tensors, "tensor") + "; the largest layer is " +
         printable_text(estimate.largest_layer, 60) + "\n\n";
}

std::string dtype_table(const MemoryEstimate& estimate, const EstimateRequest& request) {
  const bool has_activations = request.batch.has_value();
  TextTable table(right_after_first(has_activations ? 7 : 6));
  std::vector<std::string> head{"DTYPE", "LARGEST LAYER", "TOTAL SIZE",
                                "ADAM",  "SGD",           "8-BIT ADAM"};
  if (has_activations) head.emplace_back("ACTIVATIONS");
  table.add(head);
  for (const DtypeEstimate& row : estimate.dtypes) {
    std::vector<std::string> cells{name_of(row.dtype), memory_text(row.largest_layer),
                                   memory_text(row.total)};
    for (const Optimizer optimizer : kOptimizerColumns) {
      const auto need = row.training.find(optimizer);
      cells.push_back(need == row.training.end() ? "-" : memory_text(need->second.total()));
    }
    if (has_activations) cells.push_back(row.activations ? memory_text(*row.activations) : "-");
    table.add(cells);
  }
  return table.text() + "ADAM, SGD and 8-BIT ADAM: weights, gradients and optimizer of one rank\n";
}

std::string marked_name(estimate::Sharding sharding) {
  return std::string(name_of(sharding)) + (is_runnable_strategy(sharding) ? "" : "*");
}

std::string note_on_marks() {
  const auto shardings = estimate::all_shardings();
  if (std::all_of(shardings.begin(), shardings.end(),
                  [](estimate::Sharding sharding) { return is_runnable_strategy(sharding); })) {
    return "";
  }
  return "* not part of this build: accelerate launch refuses to start it\n";
}

// In 16 bits both types need the same: one row stands for both.
std::string row_name(Dtype dtype, const EstimateRequest& request) {
  const auto asked = [&](Dtype other) {
    return std::find(request.dtypes.begin(), request.dtypes.end(), other) != request.dtypes.end();
  };
  if (dtype == Dtype::kBfloat16 && asked(Dtype::kFloat16)) return "";
  if (dtype == Dtype::kFloat16 && asked(Dtype::kBfloat16)) return "float16, bfloat16";
  return name_of(dtype);
}

std::string rank_table(const MemoryEstimate& estimate, const EstimateRequest& request) {
  if (estimate.ranks.empty()) return "";
  TextTable table(right_after_first(2 + request.ranks.size(), 2));
  std::vector<std::string> head{"DTYPE", "STRATEGY"};
  for (const uint64_t ranks : request.ranks) {
    head.push_back(std::to_string(ranks) + (ranks == 1 ? " RANK" : " RANKS"));
  }
  table.add(head);
  for (size_t i = 0; i < estimate.ranks.size(); i += request.ranks.size()) {
    const RankEstimate& first = estimate.ranks[i];
    const std::string name = row_name(first.dtype, request);
    if (name.empty()) continue;
    std::vector<std::string> cells{name, marked_name(first.sharding)};
    for (size_t j = i; j < i + request.ranks.size(); ++j) {
      cells.push_back(memory_text(estimate.ranks[j].bytes));
    }
    table.add(cells);
  }
  std::string title = "\nTraining with " + std::string(name_of(request.optimizer)) + ", each rank";
  if (request.batch) {
    title += ", with activations of " + std::to_string(request.batch->batch) + " x " +
             plural(request.batch->sequence, "token");
  } else {
    title += ", without activations (--batch and --sequence add them)";
  }
  return title + ":\n" + table.text() + note_on_marks();
}

std::string fit_table(const MemoryEstimate& estimate, const EstimateRequest& request) {
  if (!request.gpus) {
    return "\nNo GPU was found here: --gpu_memory 80GiB --gpus 8 tells what would fit on some.\n";
  }
  TextTable table(right_after_first(2 + estimate::all_shardings().size()));
  std::vector<std::string> head{"DTYPE", "LOADED"};
  for (const auto sharding : estimate::all_shardings()) head.push_back(marked_name(sharding));
  table.add(head);
  std::vector<std::string> cells;
  const auto finish_row = [&] {
    if (cells.empty()) return;
    cells.resize(head.size(), "-");
    table.add(std::move(cells));
    cells.clear();
  };
  for (const FitEstimate& fit : estimate.fits) {
    if (!fit.sharding) {
      finish_row();
      cells = {name_of(fit.dtype)};
    }
    cells.push_back(fit.gpus ? plural(*fit.gpus, "GPU") : "no");
  }
  finish_row();
  return "\nWhat fits on " + plural(request.gpus->count, "GPU") + " of " +
         memory_text(request.gpus->bytes) + " (" + request.gpus->source + "), " +
         memory_text(estimate::kGpuReserve) + " of each left to CUDA; the fewest GPUs that do:\n" +
         table.text() + note_on_marks();
}

ordered_json dtype_json(const DtypeEstimate& row) {
  ordered_json value{{"dtype", name_of(row.dtype)}, {"largest_layer", row.largest_layer},
                     {"total", row.total},          {"training", nullptr},
                     {"activations", nullptr},      {"reference", nullptr}};
  for (const auto& [optimizer, need] : row.training) {
    value["training"][name_of(optimizer)] = {{"weights", need.weights},
                                             {"gradients", need.gradients},
                                             {"optimizer", need.optimizer},
                                             {"total", need.total()}};
  }
  if (row.activations) value["activations"] = *row.activations;
  if (row.reference) {
    value["reference"] = {{"model", row.reference->model},
                          {"optimizer", row.reference->optimizer},
                          {"gradients", row.reference->gradients},
                          {"step", row.reference->step},
                          {"peak", row.reference->peak()}};
  }
  return value;
}

}  // namespace

bool is_runnable_strategy(estimate::Sharding sharding,
                          std::span<const config::CapabilityRow> rows) {
  const bool has_fsdp = is_in_this_build(config::Capability::kFsdp, rows);
  const bool has_deepspeed = is_in_this_build(config::Capability::kDeepspeed, rows);
  switch (sharding) {
    case estimate::Sharding::kDdp:
      return true;
    case estimate::Sharding::kZero1:
      return has_deepspeed;
    case estimate::Sharding::kZero2:  // FSDP calls it SHARD_GRAD_OP
    case estimate::Sharding::kZero3:  // and this FULL_SHARD
      return has_fsdp || has_deepspeed;
  }
  return false;
}

std::string memory_text(uint64_t bytes) { return size_in_words(bytes, 2); }

std::string estimate_text(const MemoryEstimate& estimate, const EstimateRequest& request) {
  return head_text(estimate) + dtype_table(estimate, request) + rank_table(estimate, request) +
         fit_table(estimate, request);
}

std::string estimate_json(const MemoryEstimate& estimate, const EstimateRequest& request) {
  ordered_json document{{"model", estimate.origin},
                        {"architecture", estimate.architecture},
                        {"parameters", estimate.parameters},
                        {"tensors", estimate.tensors},
                        {"largest_layer", estimate.largest_layer},
                        {"optimizer", name_of(request.optimizer)},
                        {"dtypes", ordered_json::array()},
                        {"ranks", ordered_json::array()},
                        {"gpus", nullptr}};
  for (const DtypeEstimate& row : estimate.dtypes) document["dtypes"].push_back(dtype_json(row));
  for (const RankEstimate& row : estimate.ranks) {
    document["ranks"].push_back({{"dtype", name_of(row.dtype)},
                                 {"strategy", name_of(row.sharding)},
                                 {"in_this_build", is_runnable_strategy(row.sharding)},
                                 {"ranks", row.ranks},
                                 {"bytes", row.bytes}});
  }
  if (request.gpus) {
    document["gpus"] = {{"count", request.gpus->count},
                        {"memory", request.gpus->bytes},
                        {"source", request.gpus->source},
                        {"fits", ordered_json::array()}};
    for (const FitEstimate& fit : estimate.fits) {
      document["gpus"]["fits"].push_back(
          {{"dtype", name_of(fit.dtype)},
           {"strategy",
            fit.sharding ? ordered_json(name_of(*fit.sharding)) : ordered_json(nullptr)},
           {"gpus", fit.gpus ? ordered_json(*fit.gpus) : ordered_json(nullptr)}});
    }
  }
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace accelerate::cli
