#include "checkpoint/state/model_pieces.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/manifest/checkpoint_names.h"
#include "tensor/tensor_boxes.h"

namespace accelerate::checkpoint {
namespace {

[[noreturn]] void refuse_model_pieces(std::string what, std::string where) {
  throw CheckpointError(
      {.what = std::move(what), .where = std::move(where), .hint = "load another checkpoint"});
}

std::string shape_in_brackets(at::IntArrayRef shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// How many elements of these boxes the pieces have.
int64_t elements_in(const SavedTensor& saved, const std::vector<TensorBox>& boxes) {
  int64_t elements = 0;
  for (const TensorBox& box : boxes) {
    for (const SavedTensor::Piece& piece : saved.pieces) {
      elements += common_box(piece.box, box).numel();
    }
  }
  return elements;
}

}  // namespace

void add_model_pieces(const ModelToSave& model, size_t number, bool writes_whole_tensors,
                      TensorsFile& file) {
  require_layout_fits(model.weights, model.layout);
  file.metadata["format"] = "pt";
  for (const auto& item : model.weights) {
    const std::string& tensor = item.key();
    const auto layout = model.layout.find(tensor);
    if (layout == model.layout.end()) {
      if (!writes_whole_tensors) continue;
      file.tensors.insert(files::to_string({.model = number, .box = 0, .tensor = tensor}),
                          item.value());
      continue;
    }
    const at::Tensor elements = item.value().detach().reshape({-1});
    int64_t offset = 0;
    size_t box_number = 0;
    for (const TensorBox& box : layout->second.boxes) {
      if (box.numel() == 0) continue;
      const std::string name =
          files::to_string({.model = number, .box = box_number++, .tensor = tensor});
      file.tensors.insert(name, elements.narrow(0, offset, box.numel()).view(box.shape));
      file.shards[name] = {.global_shape = layout->second.shape, .start = box.start};
      offset += box.numel();
    }
  }
}

ModelPieceFiles::ModelPieceFiles(const StateReader& reader) {
  if (!reader.is_ours()) return;
  bool has_files = false;
  for (int rank = 0; rank < reader.ranks_with_pieces(); ++rank) {
    const std::string name = files::model_pieces_file(rank);
    if (reader.has(name)) {
      add_file(reader, name);
      has_files = true;
    } else if (absent_file_.empty()) {
      absent_file_ = name;
    }
  }
  if (!has_files) absent_file_.clear();
  for (const auto& [number, tensors] : models_) {
    for (const auto& [name, tensor] : tensors) {
      std::vector<TensorBox> boxes;
      for (const SavedTensor::Piece& piece : tensor.pieces) boxes.push_back(piece.box);
      if (!any_overlap(distinct_boxes(std::move(boxes)))) continue;
      refuse_model_pieces("the pieces of " + in_quotes(name) + " overlap",
                          reader.directory().string());
    }
  }
}

void ModelPieceFiles::add_file(const StateReader& reader, const std::string& name) {
  const SafetensorsFile file(reader.file(name));
  const std::string where = reader.where(name);
  std::map<std::string, std::vector<std::string>> other_names;
  for (const auto& [alias, first] : file.aliases()) other_names[first].push_back(alias);
  for (const files::PartRecord& part : reader.parts(name)) {
    const SafetensorsInfo& info = file.info(part.name);
    const auto piece = files::model_piece_name(part.name);
    if (!piece || !info.scalar_type) {
      refuse_model_pieces("tensor " + in_quotes(part.name) + " is not a piece of a model", where);
    }
    if (info.shape != part.shape) {
      refuse_model_pieces(
          "tensor " + in_quotes(part.name) + " has another shape than the manifest says", where);
    }
    (void)file.tensor(part.name);  // throws for what cannot be read
    SavedTensor tensor{.shape = part.shard ? part.shard->global_shape : info.shape,
                       .dtype = *info.scalar_type};
    TensorBox box = whole_box(info.shape);
    if (part.shard) box.start = part.shard->start;
    tensor.pieces.push_back({.box = std::move(box),
                             .read = [file, stored = part.name] { return file.tensor(stored); }});
    for (const std::string& alias : other_names[part.name]) {
      if (const auto other = files::model_piece_name(alias)) {
        add_piece(tensor, other->model, other->tensor, where);
      }
    }
    add_piece(std::move(tensor), piece->model, piece->tensor, where);
  }
}

void ModelPieceFiles::add_piece(SavedTensor tensor, size_t model, const std::string& name,
                                const std::string& where) {
  const auto [found, is_new] = models_[model].emplace(name, tensor);
  if (is_new) return;
  SavedTensor& known = found->second;
  if (known.shape != tensor.shape || known.dtype != tensor.dtype) {
    refuse_model_pieces("the pieces of " + in_quotes(name) + " are of different tensors", where);
  }
  // Several ranks may keep the same.
  const auto is_same = [&](const SavedTensor::Piece& other) {
    return other.box == tensor.pieces.front().box;
  };
  if (std::ranges::any_of(known.pieces, is_same)) return;
  known.pieces.push_back(std::move(tensor.pieces.front()));
}

const SavedTensors& ModelPieceFiles::model(size_t number) const {
  static const SavedTensors none;
  const auto found = models_.find(number);
  return found == models_.end() ? none : found->second;
}

SavedTensors whole_tensors(std::shared_ptr<const TensorSource> source) {
  SavedTensors saved;
  for (const StoredTensor& stored : source->tensors()) {
    saved[stored.name] = {
        .shape = stored.shape,
        .dtype = stored.dtype,
        .pieces = {{.box = whole_box(stored.shape),
                    .read = [source, name = stored.name] { return source->tensor(name); }}}};
  }
  for (const auto& [alias, name] : source->aliases()) saved.emplace(alias, saved.at(name));
  return saved;
}

CutSource::CutSource(const SavedTensors& saved, const ModelState& target,
                     const std::string& absent_file)
    : saved_(saved) {
  const std::string missing_file =
      absent_file.empty() ? "" : ", and " + absent_file + " is missing";
  for (const auto& item : target.tensors) {
    const std::string& name = item.key();
    const auto layout = target.layout.find(name);
    const at::IntArrayRef shape =
        layout == target.layout.end() ? item.value().sizes() : layout->second.shape;
    Cut cut{.shape = item.value().sizes().vec(), .dtype = item.value().scalar_type()};
    if (layout == target.layout.end()) {
      cut.boxes = {whole_box(shape)};
    } else {
      cut.boxes = layout->second.boxes;
    }
    std::erase_if(cut.boxes, [](const TensorBox& box) { return box.numel() == 0; });
    const auto found = saved_.find(name);
    if (found == saved_.end()) {
      // Other ranks notice what is missing of a tensor of which this one holds nothing.
      const bool is_needed = layout == target.layout.end() || !cut.boxes.empty();
      if (is_needed && missing_file.empty()) continue;
      if (is_needed) {
        add_problem(in_quotes(name) + " is in none of the files that are here" + missing_file);
      }
      cut.boxes.clear();
    } else if (at::IntArrayRef(found->second.shape) != shape) {
      add_problem(name + " " + shape_in_brackets(found->second.shape) + " in the checkpoint, " +
                  shape_in_brackets(shape) + " in the model");
      cut.boxes.clear();
    } else {
      cut.saved = &found->second;
      cut.dtype = found->second.dtype;
      int64_t needed = 0;
      for (const TensorBox& box : cut.boxes) needed += box.numel();
      if (elements_in(*cut.saved, cut.boxes) != needed) {
        add_problem("the pieces of " + in_quotes(name) + " do not make the whole" + missing_file);
      }
    }
    stored_.push_back({.name = name, .shape = cut.shape, .dtype = cut.dtype});
    cuts_.emplace(name, std::move(cut));
  }
  for (const auto& [name, tensor] : saved_) {
    if (!target.tensors.contains(name)) {
      stored_.push_back({.name = name, .shape = tensor.shape, .dtype = tensor.dtype});
    }
  }
}

void CutSource::add_problem(const std::string& what) {
  problems_ += (problems_.empty() ? "" : "; ") + what;
}

void CutSource::fill(at::Tensor elements, const Cut& cut) const {
  const at::NoGradGuard no_grad;
  int64_t offset = 0;
  for (const TensorBox& box : cut.boxes) {
    const at::Tensor own = elements.narrow(0, offset, box.numel()).view(box.shape);
    offset += box.numel();
    for (const SavedTensor::Piece& piece : cut.saved->pieces) {
      const TensorBox common = common_box(piece.box, box);
      if (common.numel() == 0) continue;
      box_of(own, within(common, box)).copy_(box_of(piece.read(), within(common, piece.box)));
    }
  }
}

at::Tensor CutSource::tensor(const std::string& name) const {
  const Cut& cut = cuts_.at(name);
  at::Tensor result = at::empty(cut.shape, at::TensorOptions(cut.dtype));
  fill(result.view({-1}), cut);
  return result;
}

void CutSource::read(const std::string& name, std::span<std::byte> bytes) const {
  const Cut& cut = cuts_.at(name);
  const at::Tensor elements = at::from_blob(bytes.data(), {c10::multiply_integers(cut.shape)},
                                            at::TensorOptions(cut.dtype));
  if (elements.nbytes() != bytes.size()) {
    throw CheckpointError({.what = "tensor " + in_quotes(name) + " has " +
                                   std::to_string(elements.nbytes()) + " bytes where " +
                                   std::to_string(bytes.size()) + " are expected",
                           .hint = "load it into the model that was saved"});
  }
  fill(elements, cut);
}

}  // namespace accelerate::checkpoint
