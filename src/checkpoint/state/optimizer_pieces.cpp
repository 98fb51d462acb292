#include "checkpoint/state/optimizer_pieces.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "accelerate/errors.h"
#include "files/manifest/checkpoint_names.h"
#include "tensor/optimizer_parameters.h"
#include "tensor/tensor_boxes.h"

namespace accelerate::checkpoint {
namespace {

// Counts updates: one for all elements of a parameter. All else goes by elements.
constexpr std::string_view kStepField = "step";

struct PieceName {
  size_t optimizer = 0;
  size_t parameter = 0;
  std::string field{};
};

// Of "0.3.exp_avg" or "0.3.exp_avg/1".
std::optional<PieceName> parse_piece_name(std::string_view name) {
  name = name.substr(0, name.find('/'));
  PieceName parsed;
  if (!files::take_number(name, parsed.optimizer) || !files::take_number(name, parsed.parameter))
    return std::nullopt;
  parsed.field = name;
  return parsed;
}

const TorchValue::List& list_in(const TorchDict& dict, const char* key) {
  if (const auto* list = std::get_if<TorchValue::List>(&dict.at(key).variant())) return *list;
  throw CheckpointError({.what = std::string("'") + key + "' of an optimizer is not a list",
                         .hint = "load another checkpoint"});
}

const TorchDict& states_in(const TorchValue& state) {
  return state.as_dict().at("state").as_dict();
}
const TorchValue::List& groups_in(const TorchValue& state) {
  return list_in(state.as_dict(), "param_groups");
}

TorchValue::List numbers_from(int64_t first, size_t count) {
  TorchValue::List numbers;
  for (size_t i = 0; i < count; ++i) numbers.emplace_back(first + static_cast<int64_t>(i));
  return numbers;
}

// The groups of `state`, in which group i has sizes[i] members, numbered through.
TorchValue::List renumbered_groups(const TorchValue& state, const std::vector<size_t>& sizes) {
  TorchValue::List groups;
  int64_t number = 0;
  for (size_t i = 0; i < groups_in(state).size(); ++i) {
    TorchDict group = groups_in(state)[i].as_dict();
    const size_t size = i < sizes.size() ? sizes[i] : 0;
    group.set("params", numbers_from(number, size));
    number += static_cast<int64_t>(size);
    groups.emplace_back(std::move(group));
  }
  return groups;
}

std::vector<size_t> member_counts(const TorchValue& state) {
  std::vector<size_t> counts;
  for (const TorchValue& group : groups_in(state)) {
    counts.push_back(list_in(group.as_dict(), "params").size());
  }
  return counts;
}

TorchValue state_of(TorchDict states, TorchValue::List groups) {
  TorchDict state;
  state.add("state", std::move(states));
  state.add("param_groups", std::move(groups));
  return state;
}

// Throws UsageError unless the layout has a piece for every element of the groups.
void require_layout(const LaidOutOptimizer& of) {
  const std::vector<at::Tensor> trained = parameters_of(of.optimizer);
  const auto holds = [&](size_t number) {
    int64_t elements = 0;
    for (const auto& [parameter, box] : of.layout.tensors[number]) {
      if (parameter >= of.parameters.size() || !fits(box, of.shape(parameter))) return false;
      elements += box.numel();
    }
    return elements == trained[number].numel();
  };
  bool is_whole = of.layout.tensors.size() == trained.size() &&
                  of.layout.group_sizes.size() == of.optimizer.param_groups().size() &&
                  (of.layout.shapes.empty() || of.layout.shapes.size() == of.parameters.size());
  for (size_t i = 0; is_whole && i < trained.size(); ++i) is_whole = holds(i);
  if (is_whole) return;
  throw UsageError({.what = "the layout of an optimizer does not fit what its groups hold",
                    .where = "OptimizerStrategy::layout",
                    .hint = "name, for each tensor of the groups, the pieces that make it up"});
}

[[noreturn]] void refuse_pieces(std::string what, std::string where, std::string hint) {
  throw CheckpointError(
      {.what = std::move(what), .where = std::move(where), .hint = std::move(hint)});
}

}  // namespace

at::IntArrayRef LaidOutOptimizer::shape(size_t parameter) const {
  if (layout.shapes.empty()) return parameters.at(parameter).sizes();
  return layout.shapes.at(parameter);
}

std::string pieces_file(int rank) {
  return "optimizer_pieces_" + std::to_string(rank) + ".safetensors";
}

bool has_pieces(const StateReader& reader) {
  if (!reader.is_ours()) return false;
  for (int rank = 0; rank < reader.ranks_with_pieces(); ++rank) {
    if (reader.has(pieces_file(rank))) return true;
  }
  return false;
}

OptimizerLayout whole_layout(const torch::optim::Optimizer& optimizer) {
  OptimizerLayout layout;
  for (const auto& group : optimizer.param_groups()) {
    layout.group_sizes.push_back(group.params().size());
    for (const at::Tensor& parameter : group.params()) {
      layout.tensors.push_back(
          {{.parameter = layout.tensors.size(), .box = whole_box(parameter.sizes())}});
    }
  }
  return layout;
}

TorchValue groups_by_parameters(const TorchValue& state, const OptimizerLayout& layout) {
  return state_of(TorchDict(), renumbered_groups(state, layout.group_sizes));
}

void add_pieces(const TorchValue& state, size_t number, const LaidOutOptimizer& of,
                TensorsFile& file) {
  require_layout(of);
  file.metadata["format"] = "pt";
  std::map<std::string, int> boxes;  // so far, by name
  for (const auto& [key, entries] : states_in(state).entries()) {
    const auto trained = static_cast<size_t>(key.as_integer());
    int64_t offset = 0;
    for (const ParameterPiece& piece : of.layout.tensors.at(trained)) {
      for (const auto& [field_key, value] : entries.as_dict().entries()) {
        const std::string field = field_key.as_string();
        std::string name =
            std::to_string(number) + "." + std::to_string(piece.parameter) + "." + field;
        if (field == kStepField) {
          if (file.tensors.contains(name)) continue;
          // A file has tensors of one memory once, and each parameter needs its own.
          file.tensors.insert(name, value.is_tensor() ? value.as_tensor().clone()
                                                      : at::scalar_tensor(value.as_number()));
          continue;
        }
        if (value.is_none()) continue;
        if (!value.is_tensor()) {
          refuse_pieces("the state of this optimizer does not go by elements: '" + field + "'",
                        "save_state", "use SGD, Adam, AdamW, Adagrad or RMSprop in pieces");
        }
        if (const int count = boxes[name]++; count > 0)
          name.append("/").append(std::to_string(count));
        file.tensors.insert(name, value.as_tensor()
                                      .reshape({-1})
                                      .narrow(0, offset, piece.box.numel())
                                      .view(piece.box.shape));
        file.shards[name] = {.global_shape = of.shape(piece.parameter).vec(),
                             .start = piece.box.start};
      }
      offset += piece.box.numel();
    }
  }
}

SavedOptimizerState::SavedOptimizerState(TorchValue archive, size_t number,
                                         const StateReader& reader)
    : archive_(std::move(archive)) {
  for (const auto& [key, entries] : states_in(archive_).entries()) {
    Fields& fields = states_[static_cast<size_t>(key.as_integer())];
    for (const auto& [name, value] : entries.as_dict().entries()) {
      if (!value.is_none()) fields[name.as_string()].whole = value;
    }
  }
  for (int rank = 0; reader.is_ours() && rank < reader.ranks_with_pieces(); ++rank) {
    const std::string name = pieces_file(rank);
    if (!reader.has(name)) {
      if (absent_file_.empty()) absent_file_ = name;
      continue;
    }
    if (rank == reader.rank() && reader.saved_world_size() == reader.world_size()) {
      has_own_file_ = true;
    }
    has_files_ = true;
    const SafetensorsFile file(reader.file(name));
    for (const files::PartRecord& part : reader.parts(name)) {
      const auto parsed = parse_piece_name(part.name);
      if (!parsed || parsed->optimizer != number) continue;
      Field& field = states_[parsed->parameter][parsed->field];
      at::Tensor tensor = file.tensor(part.name);
      if (tensor.sizes() != at::IntArrayRef(part.shape)) {
        refuse_pieces("tensor '" + part.name + "' has another shape than the manifest says",
                      reader.where(name), "load another checkpoint");
      }
      if (!part.shard) {
        field.whole = std::move(tensor);
      } else {
        field.pieces.push_back({.box = {.start = part.shard->start, .shape = tensor.sizes().vec()},
                                .global_shape = part.shard->global_shape,
                                .tensor = std::move(tensor)});
      }
    }
  }
}

void SavedOptimizerState::require_stateless(size_t parameter, const std::string& where) const {
  // On as many ranks as saved it, what this one needs is what it has written.
  if (!has_files_ || absent_file_.empty() || has_own_file_) return;
  refuse_pieces("the state of parameter " + std::to_string(parameter) +
                    " is in none of the files that are here, and " + absent_file_ + " is missing",
                where, "load it where the files of all ranks are");
}

at::Tensor SavedOptimizerState::elements(size_t parameter, const std::string& name,
                                         const Field& field, at::IntArrayRef shape,
                                         const TensorBox& box, const std::string& where) const {
  const auto subject = [&] { return "'" + name + "' of parameter " + std::to_string(parameter); };
  if (field.pieces.empty()) {
    const at::Tensor& whole = field.whole.as_tensor();
    if (whole.sizes() != shape) {
      refuse_pieces(subject() + " has another shape than the parameter", where,
                    "make the optimizer with the parameters that were saved");
    }
    return box_of(whole, box);
  }
  at::Tensor result = at::empty(box.shape, field.pieces.front().tensor.options());
  int64_t found = 0;
  std::vector<const Piece*> used;
  for (const Piece& piece : field.pieces) {
    if (at::IntArrayRef(piece.global_shape) != shape) {
      refuse_pieces(subject() + " has another shape than the parameter", where,
                    "make the optimizer with the parameters that were saved");
    }
    // Several ranks may keep the same.
    const auto is_same = [&](const Piece* other) { return other->box == piece.box; };
    if (std::ranges::any_of(used, is_same)) continue;
    // Else the count below would not show what is missing.
    const auto overlaps = [&](const Piece* other) {
      return common_box(other->box, piece.box).numel() > 0;
    };
    if (std::ranges::any_of(used, overlaps)) {
      refuse_pieces("the pieces of " + subject() + " overlap", where, "load another checkpoint");
    }
    used.push_back(&piece);
    const TensorBox common = common_box(piece.box, box);
    if (common.numel() == 0) continue;
    box_of(result, within(common, box)).copy_(box_of(piece.tensor, within(common, piece.box)));
    found += common.numel();
  }
  if (found != box.numel()) {
    refuse_pieces("the pieces of " + subject() + " do not make the whole", where,
                  "load it where the files of all ranks are");
  }
  return result;
}

TorchValue SavedOptimizerState::state_for(const LaidOutOptimizer& target,
                                          const std::string& where) const {
  require_layout(target);
  if (member_counts(archive_) != target.layout.group_sizes) {
    refuse_pieces("the groups of the optimizer have other numbers of parameters", where,
                  "make the optimizer with the groups that were saved");
  }
  const at::NoGradGuard no_grad;
  TorchDict states;
  const std::vector<at::Tensor> trained = parameters_of(target.optimizer);
  for (size_t i = 0; i < trained.size(); ++i) {
    const std::vector<ParameterPiece>& pieces = target.layout.tensors[i];
    std::map<std::string, std::vector<at::Tensor>> parts;
    std::optional<TorchValue> step;
    for (const ParameterPiece& piece : pieces) {
      const auto found = states_.find(piece.parameter);
      if (found == states_.end()) {
        require_stateless(piece.parameter, where);
        continue;
      }
      for (const auto& [name, field] : found->second) {
        if (name == kStepField) {
          if (!step) step = field.whole;
          continue;
        }
        parts[name].push_back(
            elements(piece.parameter, name, field, target.shape(piece.parameter), piece.box, where)
                .reshape({-1}));
      }
    }
    TorchDict entries;
    if (step) entries.add(std::string(kStepField), *step);
    for (const auto& [name, tensors] : parts) {
      if (tensors.size() != pieces.size()) {
        refuse_pieces("some parameters have '" + name + "' and others, trained with them, have not",
                      where, "load another checkpoint");
      }
      entries.add(name, at::cat(tensors).reshape(trained[i].sizes()));
    }
    if (entries.size() > 0) states.add(static_cast<int64_t>(i), std::move(entries));
  }
  std::vector<size_t> sizes;
  for (const auto& group : target.optimizer.param_groups()) sizes.push_back(group.params().size());
  return state_of(std::move(states), renumbered_groups(archive_, sizes));
}

}  // namespace accelerate::checkpoint
