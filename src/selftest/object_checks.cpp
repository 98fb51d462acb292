// Collectives of whole objects.
#include <torch/torch.h>

#include "selftest/expect.h"

namespace accelerate::selftest {
namespace {

struct Note {
  std::string text{};
  std::vector<int64_t> numbers{};
  at::Tensor tensor{};
  ACCELERATE_FIELDS(text, numbers, tensor)
};

// Longer on each rank.
Note note_of(int rank) {
  return {.text = std::string(static_cast<size_t>(rank) + 1, 'x') + "é",
          .numbers = std::vector<int64_t>(static_cast<size_t>(rank), 7),
          .tensor = torch::full({rank + 1, 2}, rank)};
}

void expect_note(const std::string& what, const Note& got, int rank) {
  const Note expected = note_of(rank);
  const std::string of = what + ", of rank " + std::to_string(rank) + ": ";
  expect_equal(of + "text", got.text, expected.text);
  expect_equal(of + "numbers", got.numbers, expected.numbers);
  expect_same(of + "tensor", got.tensor, expected.tensor);
}

Findings check_gather_object(Accelerator& accelerator) {
  const auto notes = accelerator.gather_object(note_of(accelerator.process_index()));
  expect_equal("number of objects", static_cast<int>(notes.size()), accelerator.num_processes());
  for (int rank = 0; rank < accelerator.num_processes(); ++rank) {
    expect_note("gather_object", notes[static_cast<size_t>(rank)], rank);
  }
  return {.detail = "strings, numbers and tensors of other sizes on each rank"};
}

Findings check_broadcast_object(Accelerator& accelerator) {
  for (int from = 0; from < accelerator.num_processes(); ++from) {
    expect_note("broadcast_object",
                accelerator.broadcast_object(note_of(accelerator.process_index()), from), from);
    std::vector<std::string> list(static_cast<size_t>(accelerator.process_index()), "own");
    if (accelerator.process_index() == from) list = {"a", "", std::to_string(from)};
    accelerator.broadcast_object_list(list, from);
    expect_equal("broadcast_object_list from rank " + std::to_string(from), list,
                 std::vector<std::string>{"a", "", std::to_string(from)});
  }
  return {.detail = "from every rank"};
}

}  // namespace

std::vector<Check> object_checks() {
  return {{"collectives", "gather_object", plain_options(), check_gather_object, true},
          {"collectives", "broadcast_object_list", plain_options(), check_broadcast_object, true}};
}

}  // namespace accelerate::selftest
