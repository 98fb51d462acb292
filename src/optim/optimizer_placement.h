// Where the state of an optimizer lives.
#pragma once

namespace torch::optim {
class Optimizer;
}

namespace accelerate {

// Moves state tensors (momenta, moments) that an optimizer already has to the device of their
// parameter. State that comes later is made there by the optimizer itself.
void place_optimizer_state(torch::optim::Optimizer& optimizer);

}  // namespace accelerate
