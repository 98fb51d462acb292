// Settings of the process under which two runs give the same bits.
#pragma once

#include <c10/core/Device.h>

#include <memory>

namespace accelerate {

class Communicator;

// What one accelerator asks of the process for as long as it lives. libtorch's settings are those
// of the process, so all accelerators that live at the same time ask for the same: the first one
// sets them, and the last one puts back what was there. Any thread.
class Determinism {
 public:
  // Throws UsageError if a living accelerator asked for the other, or if a library of `device` was
  // set up in a way that cannot be changed any more, and ConfigError for a variable that says the
  // opposite. `wanted` false changes nothing.
  Determinism(bool wanted, c10::Device device);
  ~Determinism();
  Determinism(const Determinism&) = delete;
  Determinism& operator=(const Determinism&) = delete;

  // The ranks that are told when an operation is refused.
  void set_ranks(const std::shared_ptr<Communicator>& ranks) const;

  // Whether a living accelerator asked for it.
  static bool is_on();

 private:
  bool wanted_;
};

}  // namespace accelerate
