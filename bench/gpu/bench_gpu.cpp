// All GPU figures in one run: see docs/performance.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "device/cuda_plugin.h"
#include "gpu/parts.h"
#include "report.h"

namespace {

using nlohmann::json;

// A part that fails is a row that says so: the others still count.
json attempted(const std::string& name, const std::function<json()>& part) {
  std::cerr << name << std::endl;
  try {
    return part();
  } catch (const std::exception& error) {
    return {{"part", name}, {"error", error.what()}};
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("GPU figures: GPT-2, an MLP, the optimizer and fused operations");
  std::vector<int64_t> batches{4, 8, 16, 32, 64};
  std::vector<std::string> modes{"fused", "captured", "library", "library captured"};
  std::vector<int64_t> plain_batches{4, 16};
  std::vector<std::string> parts{"gpt2",       "plain", "mlp",        "optimizer",
                                 "operations", "loss",  "checkpoint", "chunks"};
  std::string model = "124M";
  std::string json_file;
  std::string trace_file;
  int loss_steps = 200;
  app.add_option("--batches", batches, "Batch sizes of GPT-2");
  app.add_option("--plain-batches", plain_batches, "Batch sizes of the plain model");
  app.add_option("--modes", modes, "fused, captured, library, library captured");
  app.add_option("--parts", parts,
                 "gpt2, plain, mlp, optimizer, operations, chunks, loss, checkpoint");
  app.add_option("--model", model, "124M, 350M, 774M or 1558M");
  app.add_option("--loss-steps", loss_steps, "Steps of the comparison of losses");
  app.add_option("--json", json_file, "File for the results");
  app.add_option("--trace", trace_file, "File for the profiler's trace of batch 16");
  CLI11_PARSE(app, argc, argv);

  // Before libtorch is asked about CUDA: it remembers the answer "none".
  (void)accelerate::device::cuda_plugin();
  json rows = json::array();
  const auto wanted = [&](const std::string& name) {
    return std::ranges::find(parts, name) != parts.end();
  };
  const auto add_all = [&](const std::string& name, json (*part)()) {
    json found = attempted(name, part);
    if (!found.is_array()) found = json::array({found});
    for (json& row : found) rows.push_back(std::move(row));
  };
  if (wanted("operations")) add_all("operations", bench::operation_speed);
  if (wanted("chunks")) add_all("chunks", bench::chunk_speed);
  if (wanted("optimizer")) rows.push_back(attempted("optimizer", bench::optimizer_speed));
  if (wanted("checkpoint")) rows.push_back(attempted("checkpoint", bench::checkpoint_speed));
  if (wanted("mlp")) rows.push_back(attempted("mlp", bench::mlp_speed));
  if (wanted("loss")) {
    rows.push_back(attempted("loss", [&] { return bench::gpt2_loss_agreement(loss_steps); }));
  }
  if (wanted("gpt2")) {
    for (const int64_t batch : batches) {
      for (const std::string& mode : modes) {
        rows.push_back(attempted("gpt2 " + mode + " " + std::to_string(batch),
                                 [&] { return bench::gpt2_speed(model, batch, mode); }));
      }
    }
  }
  if (wanted("plain")) {
    for (const int64_t batch : plain_batches) {
      for (const std::string mode : {"plain", "plain captured"}) {
        rows.push_back(attempted("gpt2 " + mode + " " + std::to_string(batch),
                                 [&] { return bench::gpt2_speed(model, batch, mode); }));
      }
    }
  }
  if (!trace_file.empty()) bench::gpt2_profile(16, trace_file);
  for (const json& row : rows) std::cout << row.dump() << "\n";
  bench::publish({{"rows", rows}}, argc, argv, json_file);
}
