// Checkpoints of DeepSpeed, written by hand for any number of ranks.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "unit/files/python_pickles.h"

namespace accelerate::test {

struct DeepspeedFiles {
  struct Parameter {
    std::string name;
    std::vector<uint64_t> shape;
    uint64_t padding = 0;  // elements behind it
  };
  struct Whole {
    std::string name;
    std::vector<uint64_t> shape;
    std::string bytes;
    py::ElementType type{};
  };

  int stage = 2;
  size_t ranks = 2;
  std::vector<std::vector<Parameter>> groups{};
  std::vector<Whole> buffers{};
  std::vector<Whole> frozen{};
  std::vector<std::pair<std::string, std::string>> shared{};
  // Elements at the end of the last rank's part that were not saved (stages 1 and 2).
  size_t left_off = 0;
  bool has_paddings = false;
  std::string tag = "global_step7";
  std::string prefix = "bf16_";
  // Names of further classes in the file of the model.
  py::Value client_state = py::none();
  py::Value stage_value = {};                    // in place of the stage
  std::map<std::string, std::string> written{};  // by name, in the folder of the tag

  static uint64_t elements_of(const std::vector<uint64_t>& shape) {
    uint64_t elements = 1;
    for (const uint64_t size : shape) elements *= size;
    return elements;
  }

  // The numbers of a parameter: its own first one, then one more each.
  static std::string numbers_of(const std::string& name, uint64_t elements, uint64_t first = 0) {
    uint32_t begin = 0;
    for (const char letter : name) begin = begin * 31 + static_cast<unsigned char>(letter);
    std::string bytes;
    for (uint64_t i = 0; i < elements; ++i) {
      bytes += py::number_bytes(static_cast<uint32_t>((begin & 0xffffU) * 1000 + first + i));
    }
    return bytes;
  }
  static std::string numbers_of(const Parameter& parameter) {
    return numbers_of(parameter.name, elements_of(parameter.shape));
  }

  uint64_t part_of(uint64_t elements) const { return (elements + ranks - 1) / ranks; }

  // Of the parameters of a group.
  std::string part(const std::vector<Parameter>& group, size_t rank) const {
    if (stage == 3) {
      std::string bytes;
      for (const Parameter& parameter : group) {
        const uint64_t elements = part_of(elements_of(parameter.shape));
        std::string whole = numbers_of(parameter);
        whole.resize(4 * elements * ranks, '\xee');
        bytes += whole.substr(4 * elements * rank, 4 * elements);
      }
      return bytes;
    }
    std::string row;
    for (const Parameter& parameter : group) {
      row += numbers_of(parameter) + std::string(4 * parameter.padding, '\xdd');
    }
    const uint64_t alignment = 2 * ranks;
    const uint64_t elements = (row.size() / 4 + alignment - 1) / alignment * alignment;
    row.resize(4 * elements, '\xee');
    std::string own = row.substr(row.size() / ranks * rank, row.size() / ranks);
    if (rank + 1 == ranks) own.resize(own.size() - 4 * left_off);
    return own;
  }

  std::string optimizer_file(size_t rank) const {
    py::TorchFile file;
    std::vector<py::Value> masters;
    std::vector<py::Value> paddings;
    std::vector<py::Value> counts;
    for (const auto& group : groups) {
      const std::string bytes = part(group, rank);
      masters.push_back(file.tensor(bytes, {bytes.size() / 4}));
      std::vector<uint64_t> behind;
      for (const Parameter& parameter : group) behind.push_back(parameter.padding);
      paddings.push_back(py::list(py::integers(behind)));
      counts.push_back(py::integer(static_cast<int64_t>(ranks)));
    }
    const py::Value moments = file.tensor(std::string(40, '\x11'), {10});
    std::vector<std::pair<py::Value, py::Value>> state{
        {py::text("loss_scaler"),
         py::object("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler",
                    py::dict({{py::text("cur_scale"), py::number(1.0)}}))},
        {py::text("zero_stage"),
         stage_value.empty()
             ? py::call("deepspeed.runtime.zero.config", "ZeroStageEnum", {py::integer(stage)})
             : stage_value},
        {py::text("partition_count"),
         stage == 3 ? py::integer(static_cast<int64_t>(ranks)) : py::list(counts)},
        {py::text("base_optimizer_state"), py::dict({{py::text("exp_avg"), moments}})},
        {py::text(stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups"),
         py::list(masters)}};
    if (has_paddings) state.emplace_back(py::text("param_alignment_paddings"), py::list(paddings));
    return file.file(py::dict({{py::text("optimizer_state_dict"), py::dict(state)}}));
  }

  std::string model_file(size_t rank) const {
    py::TorchFile file;
    const auto shapes = [](const auto& parameters) {
      std::vector<std::pair<py::Value, py::Value>> entries;
      for (const auto& parameter : parameters) {
        entries.emplace_back(py::text(parameter.name), py::size(parameter.shape));
      }
      return py::dict(entries);
    };
    std::vector<py::Value> groups_of_shapes;
    for (const auto& group : groups) groups_of_shapes.push_back(shapes(group));
    std::vector<std::pair<py::Value, py::Value>> module;
    std::vector<py::Value> names;
    for (const Whole& buffer : buffers) {
      module.emplace_back(py::text(buffer.name),
                          file.tensor(buffer.bytes, buffer.shape, buffer.type));
      names.push_back(py::text(buffer.name));
    }
    std::vector<std::pair<py::Value, py::Value>> fragments;
    for (const Whole& whole : frozen) {
      if (stage != 3) {
        fragments.emplace_back(py::text(whole.name),
                               file.tensor(whole.bytes, whole.shape, whole.type));
        continue;
      }
      const uint64_t elements = part_of(elements_of(whole.shape));
      const size_t bytes = elements * whole.type.bytes;
      std::string padded = whole.bytes;
      padded.resize(bytes * ranks, '\xee');
      fragments.emplace_back(py::text(whole.name), file.tensor(padded.substr(bytes * rank, bytes),
                                                               {elements}, whole.type));
    }
    std::vector<std::pair<py::Value, py::Value>> pairs;
    for (const auto& [other, name] : shared) pairs.emplace_back(py::text(other), py::text(name));
    return file.file(py::dict({{py::text("module"), py::dict(module)},
                               {py::text("buffer_names"), py::list(names)},
                               {py::text("param_shapes"), py::list(groups_of_shapes)},
                               {py::text("frozen_param_shapes"), shapes(frozen)},
                               {py::text("frozen_param_fragments"), py::dict(fragments)},
                               {py::text("shared_params"), py::dict(pairs)},
                               {py::text("client_state"), client_state}}));
  }

  // Fills `written`.
  void make() {
    written.clear();
    for (size_t rank = 0; rank < ranks; ++rank) {
      const std::string stem = "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_";
      written[prefix + stem + "optim_states.pt"] = optimizer_file(rank);
      if (stage == 3) written[stem + "model_states.pt"] = model_file(rank);
    }
    if (stage != 3) written["mp_rank_00_model_states.pt"] = model_file(0);
  }

  void write(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder / tag);
    std::ofstream(folder / "latest") << tag << "\n";
    for (const auto& [name, bytes] : written) {
      std::ofstream(folder / tag / name, std::ios::binary) << bytes;
    }
  }
};

}  // namespace accelerate::test
