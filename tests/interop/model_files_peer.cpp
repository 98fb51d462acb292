// The C++ side of model_files_interop.py: safetensors files and saved models.
//
//   model_files_peer copy IN OUT                a safetensors file, loaded and saved again
//   model_files_peer patterns OUT               a tensor of every type, of bytes that count up
//   model_files_peer check IN                   exits with 1 unless IN holds these tensors
//   model_files_peer save MODEL FOLDER SIZE FORMAT STATE
//                                               save_model() of a new model, its tensors in STATE
//   model_files_peer load MODEL CHECKPOINT STATE  load_checkpoint_in_model(), the tensors in STATE
//
// MODEL is small or tied, FORMAT safetensors or bin. Prints the message of an error of the library
// and exits with 3.
#include <accelerate/errors.h>
#include <accelerate/model_files.h>
#include <torch/torch.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "unit/checkpoint/model_files_models.h"

namespace accelerate::test {
namespace {

constexpr int kDiffers = 1;
constexpr int kUsage = 2;
constexpr int kRefused = 3;

constexpr std::array kTypes{at::kByte,
                            at::kChar,
                            at::kShort,
                            at::kInt,
                            at::kLong,
                            at::kUInt16,
                            at::kUInt32,
                            at::kUInt64,
                            at::kHalf,
                            at::kBFloat16,
                            at::kFloat,
                            at::kDouble,
                            at::kComplexFloat,
                            at::kFloat8_e4m3fn,
                            at::kFloat8_e5m2,
                            at::kFloat8_e4m3fnuz,
                            at::kFloat8_e5m2fnuz,
                            at::kFloat8_e8m0fnu,
                            at::kBool};

// The names that Python has for them.
const char* name_of(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kUInt16:
      return "uint16";
    case at::kUInt32:
      return "uint32";
    case at::kUInt64:
      return "uint64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kComplexFloat:
      return "complex64";
    case at::kFloat8_e4m3fn:
      return "float8_e4m3fn";
    case at::kFloat8_e5m2:
      return "float8_e5m2";
    case at::kFloat8_e4m3fnuz:
      return "float8_e4m3fnuz";
    case at::kFloat8_e5m2fnuz:
      return "float8_e5m2fnuz";
    case at::kFloat8_e8m0fnu:
      return "float8_e8m0fnu";
    default:
      return "bool";
  }
}

// Byte i is (7 i + 13) mod 251; of bools, its lowest bit.
at::Tensor pattern(at::ScalarType type) {
  at::Tensor bytes = ((torch::arange(96) * 7 + 13) % 251).to(at::kByte);
  if (type == at::kBool) bytes = bytes.bitwise_and(1);
  return bytes.view(type).view({2, 3, -1});
}

int check_patterns(const std::string& path) {
  const SafetensorsFile file(path);
  int result = file.names().size() == kTypes.size() ? 0 : kDiffers;
  for (const at::ScalarType type : kTypes) {
    const at::Tensor expected = pattern(type);
    const at::Tensor found = file.tensor(name_of(type));
    if (found.scalar_type() == type && found.sizes() == expected.sizes() &&
        std::memcmp(found.data_ptr(), expected.data_ptr(), expected.nbytes()) == 0) {
      continue;
    }
    std::printf("%s differs\n", name_of(type));
    result = kDiffers;
  }
  return result;
}

std::shared_ptr<torch::nn::Module> model_of(const std::string& name) {
  if (name == "tied") return TiedNet().ptr();
  return SmallNet().ptr();
}

// Every name on its own, also those that are one tensor.
void write_state(const torch::nn::Module& module, const std::string& path) {
  save_safetensors(path, copy_of(get_state_dict(module)));
}

int run(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words[0];
  if (command == "copy" && words.size() == 3) {
    const SafetensorsFile file(words[1]);
    NamedTensors tensors;
    for (const std::string& name : file.names()) tensors.insert(name, file.tensor(name));
    save_safetensors(words[2], tensors, file.metadata());
    return 0;
  }
  if (command == "patterns" && words.size() == 2) {
    NamedTensors tensors;
    for (const at::ScalarType type : kTypes) tensors.insert(name_of(type), pattern(type));
    save_safetensors(words[1], tensors, {{"format", "pt"}, {"note", "caf\u00e9"}});
    return 0;
  }
  if (command == "check" && words.size() == 2) return check_patterns(words[1]);
  if (command == "save" && words.size() == 6) {
    const auto model = model_of(words[1]);
    save_model(*model, words[2],
               {.max_shard_size = words[3], .safe_serialization = words[4] == "safetensors"});
    write_state(*model, words[5]);
    return 0;
  }
  if (command == "load" && words.size() == 4) {
    const auto model = model_of(words[1]);
    load_checkpoint_in_model(*model, words[2], {.strict = true});
    write_state(*model, words[3]);
    return 0;
  }
  std::fputs("see the top of model_files_peer.cpp\n", stderr);
  return kUsage;
}

}  // namespace
}  // namespace accelerate::test

int main(int argc, char** argv) {
  try {
    return accelerate::test::run({argv + 1, argv + argc});
  } catch (const accelerate::Error& error) {
    std::puts(error.what());
    return accelerate::test::kRefused;
  }
}
