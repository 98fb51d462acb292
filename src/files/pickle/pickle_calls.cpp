#include "files/pickle/pickle_calls.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "accelerate/errors.h"
#include "files/pickle/pickle_dtypes.h"
#include "files/pickle/pickle_text.h"

namespace accelerate::files {
namespace {

using Callable = PickleGlobal::Callable;

struct KnownName {
  std::string_view module;
  std::string_view name;
  Callable callable;
};

constexpr std::array kKnownNames{
    KnownName{"collections", "OrderedDict", Callable::kOrderedDict},
    KnownName{"collections", "Counter", Callable::kCounter},
    KnownName{"builtins", "set", Callable::kSet},
    KnownName{"builtins", "bytes", Callable::kBytes},
    KnownName{"builtins", "bytearray", Callable::kBytearray},
    KnownName{"_codecs", "encode", Callable::kEncode},
    KnownName{"torch", "Size", Callable::kSize},
    KnownName{"torch", "device", Callable::kDevice},
    KnownName{"torch._utils", "_rebuild_tensor_v2", Callable::kRebuildTensorV2},
    KnownName{"torch._utils", "_rebuild_tensor_v3", Callable::kRebuildTensorV3},
    KnownName{"torch._utils", "_rebuild_parameter", Callable::kRebuildParameter},
    KnownName{"torch._tensor", "_rebuild_from_type_v2", Callable::kRebuildFromType},
    KnownName{"torch", "Tensor", Callable::kTensorClass},
    KnownName{"torch.nn.parameter", "Parameter", Callable::kTensorClass},
    KnownName{"numpy", "dtype", Callable::kNumpyType},
    KnownName{"numpy", "ndarray", Callable::kNumpyArrayClass},
    KnownName{"numpy._core.multiarray", "_reconstruct", Callable::kNumpyReconstruct},
    KnownName{"numpy._core.multiarray", "scalar", Callable::kNumpyScalar},
};

// The module's present name.
std::string_view renamed(std::string_view module) {
  if (module == "__builtin__") return "builtins";
  if (module == "numpy.core.multiarray") return "numpy._core.multiarray";
  return module;
}

PickleValue global(Callable callable, std::string_view dtype = {}) {
  return std::make_unique<PickleGlobal>(PickleGlobal{.callable = callable, .dtype = dtype});
}

// nullptr if the value is of another type.
template <class T>
const T* get_boxed(const PickleValue& value) {
  const auto* box = std::get_if<PickleBox<T>>(&value);
  return box == nullptr ? nullptr : box->get();
}

bool is_false_or_none(const PickleValue& value) {
  const bool* truth = std::get_if<bool>(&value);
  return std::holds_alternative<std::monostate>(value) || (truth != nullptr && !*truth);
}

constexpr size_t kMostDimensions = 64;  // of a tensor of torch

}  // namespace

void PickleCalls::refuse(const std::string& what) const {
  throw CheckpointError({.what = "the pickle of the archive cannot be read: " + what,
                         .where = where_,
                         .hint = "save tensors, numbers, texts, lists, tuples and dicts alone, as "
                                 "state_dict() returns them; if it was so, the file is damaged"});
}

void PickleCalls::charge(size_t copied_bytes) {
  if (copied_bytes > copies_left_) refuse("it repeats the same values too often");
  copies_left_ -= copied_bytes;
}

PickleIndex PickleCalls::add(PickleValue value) {
  document_.values.push_back(std::move(value));
  return static_cast<PickleIndex>(document_.values.size() - 1);
}

PickleValue PickleCalls::find_global(std::string_view module, std::string_view name) const {
  const std::string_view present = renamed(module);
  const auto* known = std::ranges::find_if(kKnownNames, [&](const KnownName& candidate) {
    return candidate.module == present && candidate.name == name;
  });
  if (known != kKnownNames.end()) return global(known->callable);
  if (module == "torch") {
    if (const auto* dtype = find_pickle_dtype(name)) return PickleDtype{.name = dtype->name};
    if (const auto* storage = find_pickle_storage_class(name)) {
      return global(Callable::kStorage, storage->name);
    }
  }
  const bool is_untyped =
      name == "UntypedStorage" && (module == "torch" || module == "torch.storage");
  if (is_untyped) return global(Callable::kStorage, find_pickle_dtype("uint8")->name);
  const auto other = std::ranges::find(classes_, PickleClass{.module = module, .name = name});
  if (other != classes_.end()) {
    return std::make_unique<PickleGlobal>(
        PickleGlobal{.callable = Callable::kRecord, .type = &*other});
  }
  throw CheckpointError(
      {.what = "the archive holds a '" + shown(module) + "." + shown(name) +
               "', which is not among the types that are read; nothing of the file was executed",
       .where = where_,
       .hint = classes_.empty() ? "save tensors, numbers, texts, lists, tuples and dicts alone, as "
                                  "state_dict() returns them"
                                : "save without it, or put the checkpoint together in Python"});
}

const std::vector<PickleIndex>& PickleCalls::tuple(PickleIndex index, size_t least,
                                                   size_t most) const {
  const auto* sequence = std::get_if<PickleSequence>(&document_.at(index));
  if (sequence == nullptr || sequence->kind != PickleSequence::Kind::kTuple ||
      sequence->items.size() < least || sequence->items.size() > most) {
    refuse("a call does not have the arguments that torch.save gives it");
  }
  return sequence->items;
}

int64_t PickleCalls::integer(PickleIndex index) const {
  if (const auto* value = std::get_if<int64_t>(&document_.at(index))) return *value;
  refuse("something else is where an integer is expected");
}

bool PickleCalls::boolean(PickleIndex index) const {
  if (const auto* value = std::get_if<bool>(&document_.at(index))) return *value;
  refuse("something else is where a boolean is expected");
}

const std::string& PickleCalls::text(PickleIndex index) const {
  if (const auto* value = std::get_if<PickleText>(&document_.at(index))) return value->text;
  refuse("something else is where a string is expected");
}

const std::string& PickleCalls::bytes(PickleIndex index) const {
  if (const auto* value = std::get_if<PickleBytes>(&document_.at(index))) return value->bytes;
  refuse("something else is where bytes are expected");
}

std::vector<int64_t> PickleCalls::sizes(PickleIndex index) {
  if (const auto* size = std::get_if<PickleSize>(&document_.at(index))) {
    charge(size->sizes.size() * sizeof(int64_t));
    return size->sizes;
  }
  std::vector<int64_t> numbers;
  charge(tuple(index, 0, kMostDimensions).size() * sizeof(int64_t));
  for (const PickleIndex item : tuple(index, 0, kMostDimensions)) numbers.push_back(integer(item));
  return numbers;
}

PickleIndex PickleCalls::call(PickleIndex callable, PickleIndex arguments) {
  const auto* global = get_boxed<PickleGlobal>(document_.at(callable));
  if (global == nullptr) refuse("something that is not a function is called");
  constexpr size_t kAny = std::numeric_limits<size_t>::max();
  const std::vector<PickleIndex>& given = tuple(arguments, 0, kAny);
  const auto expect = [&](size_t least, size_t most) { tuple(arguments, least, most); };
  switch (global->callable) {
    case Callable::kOrderedDict:
      expect(0, 0);
      return add(PickleDict{.is_ordered = true, .entries = {}});
    case Callable::kCounter:
      expect(1, 1);
      if (!std::holds_alternative<PickleDict>(document_.at(given[0]))) {
        refuse("a Counter is not made of a dict");
      }
      return given[0];
    case Callable::kSet: {
      expect(1, 1);
      const auto* list = std::get_if<PickleSequence>(&document_.at(given[0]));
      if (list == nullptr) refuse("a set is not made of a list");
      charge(list->items.size() * sizeof(PickleIndex));
      return add(PickleSequence{.kind = PickleSequence::Kind::kSet, .items = list->items});
    }
    case Callable::kBytes:
      expect(0, 0);
      return add(PickleBytes{});
    case Callable::kBytearray:
      expect(0, 1);
      if (given.empty()) return add(PickleBytes{});
      charge(bytes(given[0]).size());
      return add(PickleBytes{.bytes = bytes(given[0])});
    case Callable::kEncode:
      expect(2, 2);
      return add(encoded(given));
    case Callable::kSize:
      expect(1, 1);
      return add(PickleSize{.sizes = sizes(given[0])});
    case Callable::kDevice:
      expect(1, 2);
      return add(device(given));
    case Callable::kRebuildTensorV2:
      expect(6, 7);
      return add(tensor(given, /*names_dtype=*/false));
    case Callable::kRebuildTensorV3:
      expect(7, 8);
      return add(tensor(given, /*names_dtype=*/true));
    case Callable::kRebuildParameter:
      expect(3, 3);
      if (get_boxed<PickleTensor>(document_.at(given[0])) == nullptr) {
        refuse("a parameter is not made of a tensor");
      }
      return given[0];
    case Callable::kRebuildFromType:
      expect(4, 4);
      return tensor_with_attributes(given);
    case Callable::kRecord:
      return record(*global, arguments);
    case Callable::kNumpyType:
      expect(3, 3);
      return add(new_numpy_type(given));
    case Callable::kNumpyReconstruct: {
      expect(3, 3);
      const auto* type = get_boxed<PickleGlobal>(document_.at(given[0]));
      if (type == nullptr || type->callable != Callable::kNumpyArrayClass) {
        refuse("an array of another class than numpy.ndarray");
      }
      return add(std::make_unique<PickleNumpyArray>());
    }
    case Callable::kNumpyScalar:
      expect(2, 2);
      return add(numpy_scalar(given));
    case Callable::kStorage:
    case Callable::kTensorClass:
    case Callable::kNumpyArrayClass:
      break;
  }
  refuse("a class is called that torch.save does not call");
}

PickleIndex PickleCalls::make(PickleIndex type, PickleIndex arguments) {
  const auto* global = get_boxed<PickleGlobal>(document_.at(type));
  if (global == nullptr || global->callable != Callable::kRecord) {
    refuse("an object is made of something that torch.save makes none of");
  }
  return record(*global, arguments);
}

PickleIndex PickleCalls::record(const PickleGlobal& global, PickleIndex arguments) {
  tuple(arguments, 0, std::numeric_limits<size_t>::max());
  return add(
      std::make_unique<PickleRecord>(PickleRecord{.type = global.type, .arguments = arguments}));
}

// (function, class, its arguments, attributes): the tensor itself. As those of an OrderedDict, its
// attributes are left out.
PickleIndex PickleCalls::tensor_with_attributes(const std::vector<PickleIndex>& arguments) {
  const auto* function = get_boxed<PickleGlobal>(document_.at(arguments[0]));
  const auto* type = get_boxed<PickleGlobal>(document_.at(arguments[1]));
  const bool is_plain = function != nullptr && type != nullptr &&
                        type->callable == Callable::kTensorClass &&
                        (function->callable == Callable::kRebuildTensorV2 ||
                         function->callable == Callable::kRebuildTensorV3 ||
                         function->callable == Callable::kRebuildParameter);
  if (!is_plain) refuse("a tensor with attributes that is rebuilt in an unknown way");
  return call(arguments[0], arguments[2]);
}

PickleValue PickleCalls::encoded(const std::vector<PickleIndex>& arguments) {
  if (text(arguments[1]) != "latin1") refuse("bytes in another encoding than latin1");
  charge(text(arguments[0]).size());
  std::optional<std::string> decoded = latin1_bytes(text(arguments[0]));
  if (!decoded) refuse("bytes with a character outside of latin1");
  return PickleBytes{.bytes = *std::move(decoded)};
}

PickleValue PickleCalls::device(const std::vector<PickleIndex>& arguments) {
  std::string name = text(arguments[0]);
  charge(name.size());
  if (arguments.size() == 2) name += ":" + std::to_string(integer(arguments[1]));
  return PickleDevice{.name = std::move(name)};
}

PickleIndex PickleCalls::persistent(PickleIndex id) {
  const std::vector<PickleIndex>& parts = tuple(id, 5, 5);
  const auto* type = get_boxed<PickleGlobal>(document_.at(parts[1]));
  if (text(parts[0]) != "storage" || type == nullptr || type->callable != Callable::kStorage) {
    refuse("something that is not a storage was put aside");
  }
  const int64_t elements = integer(parts[4]);
  if (elements < 0) refuse("a storage of negative size");
  charge(text(parts[2]).size());
  return add(
      std::make_unique<PickleStorage>(PickleStorage{.dtype = type->dtype,
                                                    .is_untyped = false,
                                                    .key = text(parts[2]),
                                                    .elements = static_cast<uint64_t>(elements)}));
}

// (storage, offset, sizes, strides, requires_grad, hooks[, dtype][, metadata])
PickleValue PickleCalls::tensor(const std::vector<PickleIndex>& arguments, bool names_dtype) {
  const auto* storage = get_boxed<PickleStorage>(document_.at(arguments[0]));
  if (storage == nullptr) refuse("a tensor without a storage");
  PickleTensor tensor{.dtype = storage->dtype,
                      .storage = arguments[0],
                      .offset = integer(arguments[1]),
                      .sizes = sizes(arguments[2]),
                      .strides = sizes(arguments[3]),
                      .is_conjugate = false,
                      .is_negative = false};
  if (names_dtype) {
    const auto* dtype = std::get_if<PickleDtype>(&document_.at(arguments[6]));
    if (dtype == nullptr) refuse("a tensor without a type");
    tensor.dtype = dtype->name;
  }
  const size_t metadata = names_dtype ? 7 : 6;
  if (arguments.size() > metadata && !is_false_or_none(document_.at(arguments[metadata]))) {
    const auto* dict = std::get_if<PickleDict>(&document_.at(arguments[metadata]));
    if (dict == nullptr) refuse("a tensor with unknown attributes");
    for (const auto& [key, value] : dict->entries) {
      const std::string& name = text(key);
      if (name != "conj" && name != "neg")
        refuse("a tensor with the attribute '" + shown(name) + "'");
      (name == "conj" ? tensor.is_conjugate : tensor.is_negative) = boolean(value);
    }
  }
  check_inside(tensor);
  return std::make_unique<PickleTensor>(std::move(tensor));
}

void PickleCalls::check_inside(const PickleTensor& tensor) const {
  if (tensor.sizes.size() != tensor.strides.size() || tensor.offset < 0) {
    refuse("a tensor whose shape and strides do not fit each other");
  }
  const auto& storage = *get_boxed<PickleStorage>(document_.at(tensor.storage));
  int64_t elements = 1;
  int64_t last = tensor.offset;
  bool too_large = false;
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    const int64_t size = tensor.sizes[i];
    if (size < 0 || tensor.strides[i] < 0) refuse("a tensor with a negative size or stride");
    too_large |= __builtin_mul_overflow(elements, size, &elements);
    int64_t reach = 0;
    too_large |= size > 0 && __builtin_mul_overflow(size - 1, tensor.strides[i], &reach);
    too_large |= __builtin_add_overflow(last, reach, &last);
  }
  const uint64_t storage_bytes = find_pickle_dtype(storage.dtype)->bytes;
  const uint64_t element_bytes = find_pickle_dtype(tensor.dtype)->bytes;
  uint64_t available = 0;
  too_large |= __builtin_mul_overflow(storage.elements, storage_bytes, &available);
  available /= element_bytes;
  const uint64_t needed = static_cast<uint64_t>(elements == 0 ? tensor.offset : last);
  if (too_large || needed > available || (elements > 0 && needed == available)) {
    refuse("a tensor that is larger than its storage");
  }
}

}  // namespace accelerate::files
