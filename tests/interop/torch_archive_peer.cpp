// The C++ side of torch_archive_interop.py: reads and writes files of torch.save.
//
//   torch_archive_peer copy IN OUT             the value of IN, written again
//   torch_archive_peer write OUT               a value of every kind
//   torch_archive_peer train KIND STEPS IN OUT {parameters, optimizer}, after further steps
//
// Prints the message of an error of the library and exits with 3.
#include <accelerate/errors.h>
#include <accelerate/optimizer_state.h>
#include <accelerate/torch_archive.h>
#include <torch/torch.h>

#include <cstdio>
#include <limits>
#include <string>

#include "unit/checkpoint/optimizer_state_training.h"

namespace accelerate::test {
namespace {

constexpr int kUsage = 2;
constexpr int kRefused = 3;

TorchValue every_kind() {
  const at::Tensor base = torch::arange(24, at::kFloat).view({2, 3, 4});
  TorchDict tensors;
  for (const auto& [name, type] : std::initializer_list<std::pair<const char*, at::ScalarType>>{
           {"float32", at::kFloat},
           {"float64", at::kDouble},
           {"float16", at::kHalf},
           {"bfloat16", at::kBFloat16},
           {"int64", at::kLong},
           {"int32", at::kInt},
           {"int16", at::kShort},
           {"int8", at::kChar},
           {"uint8", at::kByte},
           {"bool", at::kBool},
           {"complex64", at::kComplexFloat},
           {"complex128", at::kComplexDouble},
           {"uint16", at::kUInt16},
           {"uint32", at::kUInt32},
           {"uint64", at::kUInt64},
           {"float8_e4m3fn", at::kFloat8_e4m3fn},
           {"float8_e5m2", at::kFloat8_e5m2},
           {"float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
           {"float8_e5m2fnuz", at::kFloat8_e5m2fnuz}}) {
    tensors.add(name, torch::tensor({0.0, 1.0, 1.0, 0.0, 1.0}).to(type));
  }
  const at::Tensor whole = torch::arange(6, at::kInt);
  return TorchDict{
      {"none", {}},
      {"truths", TorchValue::List{true, false}},
      {"integers", TorchValue::List{0, 255, 256, -1, 2147483647, -2147483648LL, 4294967296LL,
                                    std::numeric_limits<int64_t>::min()}},
      {"large", TorchBigInteger{"-18446744073709551617"}},
      {"numbers", TorchValue::List{0.1, -0.0, std::numeric_limits<double>::infinity()}},
      {"text", "\xc3\xa4\xf0\x9f\x98\x80"},
      {"bytes", TorchBytes{std::string("\x00\x7f\x80\xff", 4)}},
      {"no bytes", TorchBytes{}},
      {"tuple", TorchTuple{{1, TorchTuple{}}}},
      {"set", TorchSet{{1, 2}}},
      {"size", TorchSize{{2, 3}}},
      {"type", at::kBFloat16},
      {"devices", TorchValue::List{c10::Device(c10::kCPU), c10::Device(c10::kCUDA, 1)}},
      {"ordered", TorchDict({{"b", 1}, {"a", 2}}, TorchDict::Kind::kOrderedDict)},
      {"empty", TorchValue::List{TorchValue::List{}, TorchDict(), TorchTuple{}}},
      {3, "integer key"},
      {TorchTuple{{1, "x"}}, "tuple key"},
      {"tensors", tensors},
      {"transposed", base.transpose(0, 2)},
      {"part", base.select(0, 1)},
      {"scalar", torch::tensor(2.5)},
      {"hollow", torch::empty({0, 3})},
      {"conjugate", torch::view_as_complex(torch::ones({3, 2})).conj()},
      {"shared", TorchValue::List{whole, whole.slice(0, 2, 4), whole.view(at::kFloat)}}};
}

template <class Optimizer, class Options>
OptimizerPointer two_groups(const std::vector<at::Tensor>& parameters, const Options& options) {
  const std::vector<torch::optim::OptimizerParamGroup> groups{
      {{parameters[0], parameters[1]}, std::make_unique<Options>(options)},
      {{parameters[2]}, std::make_unique<Options>(options)}};
  return std::make_shared<Optimizer>(groups, options);
}

OptimizerPointer optimizer_of(const std::string& kind, const std::vector<at::Tensor>& parameters) {
  namespace optim = torch::optim;
  if (kind == "SGD") return two_groups<optim::SGD>(parameters, optim::SGDOptions(1));
  if (kind == "Adam") return two_groups<optim::Adam>(parameters, optim::AdamOptions(1));
  if (kind == "AdamW") return two_groups<optim::AdamW>(parameters, optim::AdamWOptions(1));
  if (kind == "Adagrad") return two_groups<optim::Adagrad>(parameters, optim::AdagradOptions(1));
  if (kind == "RMSprop") return two_groups<optim::RMSprop>(parameters, optim::RMSpropOptions(1));
  return std::make_shared<optim::LBFGS>(parameters, optim::LBFGSOptions(1));
}

void train(const std::string& kind, int steps, const std::string& in, const std::string& out) {
  const TorchValue saved = load_torch_archive(in);
  Training training;
  for (const TorchValue& value : saved.as_dict().at("parameters").as_sequence()) {
    training.parameters.push_back(value.as_tensor().clone().requires_grad_());
  }
  training.optimizer = optimizer_of(kind, training.parameters);
  load_optimizer_state(*training.optimizer, saved.as_dict().at("optimizer"), in);
  training.steps(steps);
  const TorchValue::List parameters(training.parameters.begin(), training.parameters.end());
  save_torch_archive(out, TorchDict{{"parameters", parameters},
                                    {"optimizer", optimizer_state(*training.optimizer)}});
}

int run(const std::vector<std::string>& words) {
  if (words.size() == 3 && words[0] == "copy") {
    save_torch_archive(words[2], load_torch_archive(words[1]));
  } else if (words.size() == 2 && words[0] == "write") {
    save_torch_archive(words[1], every_kind());
  } else if (words.size() == 5 && words[0] == "train") {
    train(words[1], std::stoi(words[2]), words[3], words[4]);
  } else {
    std::fputs("usage: see the beginning of torch_archive_peer.cpp\n", stderr);
    return kUsage;
  }
  return 0;
}

}  // namespace
}  // namespace accelerate::test

int main(int count, char** words) {
  try {
    return accelerate::test::run({words + 1, words + count});
  } catch (const accelerate::Error& error) {
    std::puts(error.what());
    return accelerate::test::kRefused;
  }
}
