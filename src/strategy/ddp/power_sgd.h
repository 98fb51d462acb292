// Gradients as products of thin matrices.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "accelerate/comm_hook.h"
#include "accelerate/state_dict.h"
#include "compat/reducer.h"

namespace accelerate {

// For a matrix M on each rank and a few directions Q that all ranks share, the ranks exchange
//   P = sum of M Q, made orthonormal;  Q = mean of M^T P;  and take P Q^T for the mean of M,
// which it is if that mean has no more than r independent rows. What is left out is kept on each
// rank and added to its next gradient; Q is where the next approximation starts from.
//
// The order in which collectives begin is that of the calls of runHook(), which c10d makes equal on
// all ranks: nothing is started from the threads of a backend.
class PowerSgdHook final : public c10d::CommHookInterface {
 public:
  // How a bucket is seen: each gradient as a matrix, or all of it as one square.
  enum class Shape { kGradients, kSquare };

  PowerSgdHook(c10::intrusive_ptr<c10d::ProcessGroup> group, const PowerSgdOptions& options,
               Shape shape);

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

  // What is kept from pass to pass; see ExchangeMemory.
  StateDict state() const;
  std::string check(const StateDict& state) const;
  void load(const StateDict& state, c10::Device device);

 private:
  // What is kept from pass to pass, one for each bucket.
  struct Memory {
    at::Tensor error;
    std::vector<at::Tensor> directions;        // Q, as the last pass left them
    std::vector<at::Tensor> first_directions;  // random; instead of those that vanished
  };
  struct Saved {
    int64_t iteration = 0;
    uint64_t draws = 0;
    int64_t rank = 0;                     // of the approximation; 0 where it is not known
    std::string hook{};                   // by its name; "" where that is not known
    std::map<size_t, Memory> memories{};  // shares the tensors of the state
  };
  // One pass of one bucket.
  struct Pass;

  static Saved parse(const StateDict& state);

  Pass begin_pass(c10d::GradBucket& bucket, Memory& memory);
  void draw_directions(const std::vector<at::Tensor>& matrices, Memory& memory);
  void finish_pass(Pass& pass) const;
  bool is_worth_compressing(const at::Tensor& matrix) const;
  int64_t rank_for(const at::Tensor& matrix) const;
  void orthogonalize(at::Tensor& matrix) const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  PowerSgdOptions options_;
  Shape shape_;
  int64_t iteration_ = 0;
  uint64_t draws_ = 0;
  std::map<size_t, Memory> memories_;
};

}  // namespace accelerate
