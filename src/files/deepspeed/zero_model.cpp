#include "files/deepspeed/zero_model.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/deepspeed/zero_files.h"
#include "files/deepspeed/zero_states.h"
#include "files/pieces/float_conversion.h"
#include "files/safetensors/safetensors_header.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_weights(const fs::path& path, const std::string& what) {
  throw CheckpointError({.what = what,
                         .where = path.string(),
                         .hint = "the files are damaged, or of different checkpoints"});
}

// Elements that lie in several files, seen as one row.
class FlatRow {
 public:
  void add(size_t file, const ZeroFlat& part) {
    if (part.elements == 0) return;
    ends_.push_back(elements() + part.elements);
    parts_.emplace_back(file, part);
  }

  uint64_t elements() const { return ends_.empty() ? 0 : ends_.back(); }

  // Adds those from `first` on as pieces of `tensor`, from its element `at` on.
  void add_pieces(uint64_t first, uint64_t count, uint64_t at, PiecedTensor& tensor) const {
    auto part = static_cast<size_t>(std::ranges::upper_bound(ends_, first) - ends_.begin());
    for (; count > 0; ++part) {
      const auto& [file, flat] = parts_[part];
      const uint64_t skipped = first - (ends_[part] - flat.elements);
      const uint64_t taken = std::min(count, flat.elements - skipped);
      const uint64_t element_bytes = dtype_bits(flat.dtype) / 8;
      tensor.pieces.push_back({.file = file,
                               .offset = flat.offset + skipped * element_bytes,
                               .shape = {taken},
                               .start = {at}});
      first += taken;
      at += taken;
      count -= taken;
    }
  }

 private:
  std::vector<std::pair<size_t, ZeroFlat>> parts_;
  std::vector<uint64_t> ends_;
};

class ZeroModelReader {
 public:
  ZeroModelReader(ZeroFiles files, const ZeroModelOptions& options)
      : files_(std::move(files)), options_(options) {}

  PiecedModel read() {
    model_.folder = files_.folder;
    model_.metadata.emplace("format", "pt");
    for (const fs::path& path : files_.optimizer_states) {
      optimizers_.push_back(read_zero_optimizer_states(path));
      model_.mappings.push_back(optimizers_.back().file);
    }
    check_optimizers();
    for (const fs::path& path : files_.model_states) {
      // Parts of frozen parameters are all that others than the first are needed for.
      if (!models_.empty() && (options_.exclude_frozen_parameters || models_[0].frozen.empty())) {
        break;
      }
      models_.push_back(read_zero_model_states(path));
      model_.mappings.push_back(models_.back().file);
    }
    add_buffers();
    if (!options_.exclude_frozen_parameters) add_frozen();
    is_stage_3() ? add_partitioned() : add_grouped();
    add_shared();
    require_whole_tensors(model_);
    check_size();
    model_.paths = files_.optimizer_states;
    model_.paths.insert(model_.paths.end(), files_.model_states.begin(), files_.model_states.end());
    return std::move(model_);
  }

 private:
  bool is_stage_3() const { return optimizers_[0].stage == 3; }
  size_t ranks() const { return optimizers_.size(); }
  size_t number_of_model_file(size_t rank) const { return ranks() + rank; }

  void check_optimizers() const {
    const ZeroOptimizerStates& first = optimizers_[0];
    if (first.ranks != ranks()) {
      refuse_weights(files_.folder, "it was saved by " + std::to_string(first.ranks) +
                                        " ranks, and the files of " + std::to_string(ranks()) +
                                        " are here");
    }
    for (size_t rank = 1; rank < ranks(); ++rank) {
      const ZeroOptimizerStates& other = optimizers_[rank];
      bool fits = other.stage == first.stage && other.ranks == first.ranks &&
                  other.masters.size() == first.masters.size();
      for (size_t i = 0; fits && i < first.masters.size(); ++i) {
        fits = other.masters[i].dtype == first.masters[i].dtype &&
               (!is_stage_3() || other.masters[i].elements == first.masters[i].elements);
      }
      if (!fits) {
        refuse_weights(files_.optimizer_states[rank],
                       "it does not belong to the file of rank 0: stage, ranks or groups differ");
      }
    }
    const size_t needed = is_stage_3() ? ranks() : 1;
    if (files_.model_states.size() != needed) {
      refuse_weights(files_.folder, "ZeRO stage " + std::to_string(first.stage) + " of " +
                                        std::to_string(ranks()) + " ranks leaves " +
                                        std::to_string(needed) + " files of model states, not " +
                                        std::to_string(files_.model_states.size()));
    }
  }

  uint64_t elements_of(const std::string& name, const std::vector<uint64_t>& shape) const {
    uint64_t elements = 1;
    bool too_many = !tensor_bytes(TensorDtype::kF64, shape).has_value();
    for (const uint64_t size : shape) {
      too_many |= __builtin_mul_overflow(elements, size, &elements);
    }
    if (too_many) refuse_weights(files_.folder, in_quotes(name) + " has too many elements");
    return elements;
  }

  void add(PiecedTensor tensor) {
    if (!names_.insert(tensor.name).second) {
      refuse_weights(files_.folder, "two tensors are named " + in_quotes(tensor.name));
    }
    model_.tensors.push_back(std::move(tensor));
  }

  // Adds a tensor that a file holds as a whole, or another name of one that was added already.
  void add_whole(const std::string& name, const ArchivedTensor& located, size_t file,
                 bool is_buffer) {
    const TensorPiece& piece = located.piece;
    const auto place =
        std::tuple(file, piece.offset, piece.shape, piece.strides, located.dtype, is_buffer);
    if (located.elements > 0) {
      const auto [known, is_new] = wholes_.emplace(place, name);
      if (!is_new) {
        if (!names_.insert(name).second) {
          refuse_weights(files_.folder, "two tensors are named " + in_quotes(name));
        }
        model_.aliases.emplace(name, known->second);
        return;
      }
    }
    PiecedTensor tensor{.name = name, .dtype = located.dtype, .shape = piece.shape};
    tensor.pieces.push_back(piece);
    tensor.pieces.back().file = file;
    if (is_buffer && fits_float(tensor)) {
      tensor.stored = tensor.dtype;
      tensor.dtype = TensorDtype::kF32;
    }
    add(std::move(tensor));
  }

  // As zero_to_fp32.py has buffers; but no number is changed by that.
  bool fits_float(const PiecedTensor& tensor) const {
    if (tensor.dtype == TensorDtype::kF32 || !is_convertible(tensor.dtype)) return false;
    bool fits = true;
    for_each_run(tensor, [&](size_t file, uint64_t offset, uint64_t bytes) {
      fits =
          fits && fit_floats(tensor.dtype, model_.mappings[file]->bytes().subspan(offset, bytes));
    });
    return fits;
  }

  void add_buffers() {
    for (const auto& [name, located] : models_[0].buffers) {
      add_whole(name, located, number_of_model_file(0), /*is_buffer=*/true);
    }
  }

  const ArchivedTensor& fragment_of(size_t rank, const std::string& name) const {
    for (const auto& [other, located] : models_[rank].frozen_fragments) {
      if (other == name) return located;
    }
    refuse_weights(files_.model_states[rank],
                   "it does not hold its part of the frozen parameter " + in_quotes(name));
  }

  void add_frozen() {
    for (const auto& [name, shape] : models_[0].frozen) {
      if (is_stage_3()) {
        add_frozen_parts(name, shape);
        continue;
      }
      const ArchivedTensor& whole = fragment_of(0, name);
      if (whole.piece.shape != shape) {
        refuse_weights(files_.model_states[0],
                       "the frozen parameter " + in_quotes(name) + " has two shapes");
      }
      add_whole(name, whole, number_of_model_file(0), /*is_buffer=*/false);
    }
  }

  void add_frozen_parts(const std::string& name, const std::vector<uint64_t>& shape) {
    PiecedTensor tensor{
        .name = name, .dtype = fragment_of(0, name).dtype, .shape = shape, .is_flat = true};
    FlatRow row;
    for (size_t rank = 0; rank < models_.size(); ++rank) {
      const ArchivedTensor& part = fragment_of(rank, name);
      if (part.dtype != tensor.dtype || !part.piece.strides.empty()) {
        refuse_weights(files_.model_states[rank], "its part of " + in_quotes(name) +
                                                      " is of another kind than that of rank 0");
      }
      row.add(number_of_model_file(rank),
              {.dtype = part.dtype, .offset = part.piece.offset, .elements = part.elements});
    }
    const uint64_t elements = elements_of(name, shape);
    require_elements(name, elements, row.elements());
    row.add_pieces(0, elements, 0, tensor);
    add(std::move(tensor));
  }

  void require_elements(const std::string& name, uint64_t needed, uint64_t left) const {
    if (needed <= left) return;
    refuse_weights(files_.folder, "the ranks have " + std::to_string(left) + " elements left for " +
                                      in_quotes(name) + ", which has " + std::to_string(needed));
  }

  // Stages 1 and 2: the parts of the ranks, one after another, are all parameters of a group, one
  // after another.
  void add_grouped() {
    const auto& groups = models_[0].groups;
    const auto& paddings = optimizers_[0].paddings;
    const size_t count = optimizers_[0].masters.size();
    if (groups.size() != count || (!paddings.empty() && paddings.size() != count)) {
      refuse_weights(files_.folder, "the model has " + std::to_string(groups.size()) +
                                        " groups of parameters, the optimizer " +
                                        std::to_string(count));
    }
    for (size_t group = 0; group < count; ++group) {
      FlatRow row;
      for (size_t rank = 0; rank < ranks(); ++rank) {
        row.add(rank, optimizers_[rank].masters[group]);
      }
      add_group(groups[group], row, optimizers_[0].masters[group].dtype,
                paddings.empty() ? std::vector<uint64_t>() : paddings[group]);
    }
  }

  void add_group(const ZeroShapes& shapes, const FlatRow& row, TensorDtype dtype,
                 const std::vector<uint64_t>& paddings) {
    if (!paddings.empty() && paddings.size() != shapes.size()) {
      refuse_weights(files_.folder,
                     "the optimizer has another number of parameters than the model");
    }
    uint64_t used = 0;
    uint64_t next = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto& [name, shape] = shapes[i];
      const uint64_t elements = elements_of(name, shape);
      require_elements(name, elements, row.elements() - std::min(next, row.elements()));
      PiecedTensor tensor{.name = name, .dtype = dtype, .shape = shape, .is_flat = true};
      row.add_pieces(next, elements, 0, tensor);
      add(std::move(tensor));
      used = next + elements;
      const uint64_t padding = paddings.empty() ? 0 : paddings[i];
      if (__builtin_add_overflow(used, padding, &next)) next = row.elements();
    }
    check_all_used(used, next, row.elements());
  }

  // The end of a group is padded to a multiple of two elements a rank; how much of that is in the
  // files varies.
  void check_all_used(uint64_t used, uint64_t padded, uint64_t available) const {
    const uint64_t alignment = 2 * ranks();
    const auto blocks = [&](uint64_t elements) {
      return elements / alignment + (elements % alignment == 0 ? 0 : 1);
    };
    if (blocks(available) == blocks(used) || blocks(available) == blocks(padded)) return;
    refuse_weights(files_.folder, "the parameters of a group have " + std::to_string(used) +
                                      " elements, and the ranks have " + std::to_string(available));
  }

  // Stage 3: of each parameter every rank has an equal part, the last one padded; the parts of a
  // rank are in its groups, one after another.
  void add_partitioned() {
    std::vector<FlatRow> rows(ranks());
    std::set<TensorDtype> dtypes;
    for (size_t rank = 0; rank < ranks(); ++rank) {
      for (const ZeroFlat& flat : optimizers_[rank].masters) {
        rows[rank].add(rank, flat);
        dtypes.insert(flat.dtype);
      }
    }
    if (dtypes.size() > 1) {
      refuse_weights(files_.folder, "the groups of the optimizer are of different types");
    }
    const TensorDtype dtype = dtypes.empty() ? TensorDtype::kF32 : *dtypes.begin();
    uint64_t next = 0;
    for (const ZeroShapes& shapes : models_[0].groups) {
      for (const auto& [name, shape] : shapes) {
        const uint64_t elements = elements_of(name, shape);
        const uint64_t part = elements / ranks() + (elements % ranks() == 0 ? 0 : 1);
        require_elements(name, part, rows[0].elements() - next);
        PiecedTensor tensor{.name = name, .dtype = dtype, .shape = shape, .is_flat = true};
        for (size_t rank = 0; rank < ranks(); ++rank) {
          const uint64_t begin = std::min(elements, rank * part);
          rows[rank].add_pieces(next, std::min(part, elements - begin), begin, tensor);
        }
        add(std::move(tensor));
        next += part;
      }
    }
    if (next != rows[0].elements()) {
      refuse_weights(files_.folder, "the parameters have " + std::to_string(next) +
                                        " elements on each rank, and the files " +
                                        std::to_string(rows[0].elements()));
    }
  }

  void add_shared() {
    for (const auto& [other, name] : models_[0].shared) {
      if (!names_.contains(name) || names_.contains(other)) continue;
      const auto alias = model_.aliases.find(name);
      model_.aliases.emplace(other, alias == model_.aliases.end() ? name : alias->second);
    }
  }

  // Views of one memory under several names make much of little; a model has few of them.
  void check_size() const {
    constexpr uint64_t kMostTimes = 16;
    constexpr uint64_t kAlways = uint64_t{1} << 20U;
    uint64_t held = 0;
    for (const auto& mapping : model_.mappings) held += mapping->size();
    uint64_t needed = 0;
    for (const PiecedTensor& tensor : model_.tensors) {
      const uint64_t bytes = *tensor_bytes(tensor.dtype, tensor.shape);
      if (__builtin_add_overflow(needed, bytes, &needed) || needed > kMostTimes * held + kAlways) {
        refuse_weights(files_.folder, "its tensors have more bytes than its files");
      }
    }
  }

  ZeroFiles files_;
  const ZeroModelOptions& options_;
  std::vector<ZeroOptimizerStates> optimizers_;
  std::vector<ZeroModelStates> models_;
  PiecedModel model_;
  std::set<std::string> names_;
  std::map<
      std::tuple<size_t, uint64_t, std::vector<uint64_t>, std::vector<uint64_t>, TensorDtype, bool>,
      std::string>
      wholes_;  // names of tensors by their place
};

}  // namespace

PiecedModel read_deepspeed_folder(const fs::path& folder, const ZeroModelOptions& options) {
  return ZeroModelReader(find_zero_files(folder, options.tag, options.links), options).read();
}

}  // namespace accelerate::files
