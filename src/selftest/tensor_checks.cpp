// Collectives of tensors: every rank knows what must come out.
#include <torch/torch.h>

#include <map>

#include "selftest/expect.h"

namespace accelerate::selftest {
namespace {

at::TensorOptions here(Accelerator& accelerator, at::ScalarType type = at::kFloat) {
  return at::TensorOptions().device(accelerator.device()).dtype(type);
}

// Values that no other rank and no other place has.
at::Tensor of_rank(int rank, int64_t rows, const at::TensorOptions& options) {
  return torch::arange(rows * 2, options).view({rows, 2}) + 100 * (rank + 1);
}

Findings check_gather(Accelerator& accelerator) {
  const int ranks = accelerator.num_processes();
  const int own = accelerator.process_index();
  int types = 0;
  for (const auto type : {at::kFloat, at::kDouble, at::kLong, at::kBFloat16, at::kByte}) {
    const at::TensorOptions options = here(accelerator, type);
    // Two rows on each rank, then as many as its number plus one.
    for (const bool ragged : {false, true}) {
      const auto rows = [&](int rank) { return ragged ? rank % 3 + 1 : 2; };
      std::vector<at::Tensor> expected;
      for (int rank = 0; rank < ranks; ++rank) {
        expected.push_back(of_rank(rank, rows(rank), options));
      }
      expect_same(std::string("gather of ") + c10::toString(type) + (ragged ? ", ragged" : ""),
                  accelerator.gather(of_rank(own, rows(own), options)), torch::cat(expected));
    }
    ++types;
  }
  const std::map<std::string, at::Tensor> nested{{"rank", torch::full({}, own, here(accelerator))}};
  expect_same("gather of one number per rank", accelerator.gather(nested).at("rank"),
              torch::arange(ranks, here(accelerator)));
  return {.detail = "even, ragged and nested, " + std::to_string(types) + " types"};
}

Findings check_reduce(Accelerator& accelerator) {
  const int ranks = accelerator.num_processes();
  const at::TensorOptions options = here(accelerator);
  std::vector<at::Tensor> all;
  // Signs differ, so that the largest and the smallest are not on one rank alone.
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(torch::tensor({float(rank + 1), float(-rank), 2.0F}, options));
  }
  const at::Tensor stacked = torch::stack(all);
  const at::Tensor own = all[static_cast<size_t>(accelerator.process_index())];
  const std::map<std::string, at::Tensor> expected{{"sum", stacked.sum(0)},
                                                   {"mean", stacked.mean(0)},
                                                   {"max", stacked.amax(0)},
                                                   {"min", stacked.amin(0)},
                                                   {"none", own}};
  for (const auto& [name, result] : expected) {
    expect_near("reduce by " + name, accelerator.reduce(own, name), result, 1e-6);
  }
  expect_near("reduce by sum, times a half", accelerator.reduce(own, "sum", 0.5),
              stacked.sum(0) * 0.5, 1e-6);
  return {.detail = "sum, mean, max, min"};
}

Findings check_broadcast(Accelerator& accelerator) {
  for (int from = 0; from < accelerator.num_processes(); ++from) {
    const at::TensorOptions options = here(accelerator);
    expect_same("broadcast from rank " + std::to_string(from),
                accelerator.broadcast(of_rank(accelerator.process_index(), 3, options), from),
                of_rank(from, 3, options));
  }
  return {.detail = "from every rank"};
}

Findings check_scatter(Accelerator& accelerator) {
  const int ranks = accelerator.num_processes();
  const int own = accelerator.process_index();
  const at::TensorOptions options = here(accelerator);
  Communicator& comm = accelerator.communicator();

  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ranks; ++rank) parts.push_back(of_rank(rank, 2, options));
  at::Tensor part = torch::zeros({2, 2}, options);
  comm.scatter(part, accelerator.is_main_process() ? parts : std::vector<at::Tensor>{}, 0);
  expect_same("scatter", part, parts[static_cast<size_t>(own)]);

  at::Tensor sum = torch::zeros({ranks, 2}, options);
  for (int rank = 0; rank < ranks; ++rank) sum += of_rank(rank, ranks, options);
  expect_same("reduce_scatter", comm.reduce_scatter(of_rank(own, ranks, options)),
              sum.narrow(0, own, 1));
  return {};
}

Findings check_pad(Accelerator& accelerator) {
  const int own = accelerator.process_index();
  const int64_t longest = accelerator.num_processes();
  const at::TensorOptions options = here(accelerator);
  const at::Tensor rows = of_rank(own, own + 1, options);
  const at::Tensor padding = torch::full({longest - own - 1, 2}, -1, options);
  expect_same("padding behind the rows", accelerator.pad_across_processes(rows, {.pad_index = -1}),
              torch::cat({rows, padding}));
  expect_same("padding before the rows",
              accelerator.pad_across_processes(rows, {.pad_index = -1, .pad_first = true}),
              torch::cat({padding, rows}));
  return {};
}

Findings check_barrier(Accelerator& accelerator) {
  constexpr int kTimes = 10;
  for (int i = 0; i < kTimes; ++i) accelerator.wait_for_everyone();
  return {.detail = std::to_string(kTimes) + " times"};
}

}  // namespace

std::vector<Check> tensor_checks() {
  return {{"collectives", "gather", plain_options(), check_gather, true},
          {"collectives", "reduce", plain_options(), check_reduce, true},
          {"collectives", "broadcast", plain_options(), check_broadcast, true},
          {"collectives", "scatter and reduce_scatter", plain_options(), check_scatter, true},
          {"collectives", "pad_across_processes", plain_options(), check_pad, true},
          {"collectives", "barrier", plain_options(), check_barrier, true}};
}

}  // namespace accelerate::selftest
