#include "compat/xla/engine_threads.h"

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/engine.h>

#include <cstddef>

namespace accelerate::compat {
namespace {

// A derived class may name protected members of its base.
struct OpenEngine : torch::autograd::Engine {
  static size_t queues(torch::autograd::Engine& engine) {
    return (engine.*&OpenEngine::device_ready_queues_).size();
  }
  static void start(torch::autograd::Engine& engine) {
    (engine.*&OpenEngine::start_device_threads)();
  }
};

}  // namespace

void AutogradThreads::begin() {
  const at::AutoGradMode with_gradients(true);
  at::ones({1}).set_requires_grad(true).sum().backward();
}

void AutogradThreads::add_missing(int devices) {
  auto& engine = torch::autograd::Engine::get_default_engine();
  // Threads for some devices are not replaced: they may be at work.
  if (OpenEngine::queues(engine) == 0 && devices > 0) OpenEngine::start(engine);
}

}  // namespace accelerate::compat
