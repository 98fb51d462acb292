#include <ATen/Context.h>

#include <mutex>

#include "accelerate/communicator.h"
#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "accelerate/rng_types.h"
#include "compat/cuda_plugin.h"

namespace accelerate {
namespace {

at::Generator generator_of(RngType type, const std::optional<at::Generator>& generator,
                           c10::Device gpu) {
  switch (type.value()) {
    case RngType::kTorch:
      return at::globalContext().defaultGenerator(at::Device(at::kCPU));
    case RngType::kCuda:
      // Before libtorch is asked.
      if (compat::has_cuda()) return at::globalContext().defaultGenerator(gpu);
      throw UsageError({.what = "there is no GPU whose random state could be synchronised",
                        .where = "synchronize_rng_states",
                        .hint = "leave 'cuda' out of the types"});
    case RngType::kGenerator:
      break;
  }
  if (generator && generator->defined()) return *generator;
  throw UsageError({.what = "'generator' is to be synchronised, but none was given",
                    .where = "synchronize_rng_states",
                    .hint = "pass the generator, or leave 'generator' out of the types"});
}

}  // namespace

RngType::RngType(std::string_view name) {
  if (name == "torch") {
    value_ = kTorch;
  } else if (name == "cuda") {
    value_ = kCuda;
  } else if (name == "generator") {
    value_ = kGenerator;
  } else {
    throw UsageError({.what = "'" + std::string(name) + "' is not a type of random state",
                      .where = "rng_types",
                      .hint = "one of torch, cuda, generator"});
  }
}

void synchronize_rng_states(Communicator& communicator, const std::vector<RngType>& types,
                            std::optional<at::Generator> generator, c10::Device gpu) {
  std::vector<at::Generator> generators;
  generators.reserve(types.size());
  detail::stamped(communicator, [&] {
    if (!gpu.is_cuda()) {
      throw UsageError({.what = gpu.str() + " is not a GPU",
                        .where = "synchronize_rng_states",
                        .hint = "pass the device whose random state 'cuda' means"});
    }
    for (const RngType type : types) generators.push_back(generator_of(type, generator, gpu));
  });
  for (at::Generator& each : generators) {
    at::Tensor state;
    {
      const std::lock_guard<std::mutex> lock(each.mutex());
      state = each.get_state();
    }
    communicator.broadcast(state);
    const std::lock_guard<std::mutex> lock(each.mutex());
    each.set_state(state);
  }
}

}  // namespace accelerate
