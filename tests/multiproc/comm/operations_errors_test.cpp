// What operations on nested values refuse: the same on all ranks, before data is sent, and the
// group goes on.
#include "multiproc/comm/operations_values.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

struct OperationErrors : Ranks {
  // The text of the refusal of `action` on rank 0, without the rank. Checks that each rank's has
  // its own, that its first line is the same on all ranks otherwise, and that the group goes on
  // afterwards.
  template <class Action>
  std::string refusal(int world_size, Action action, bool debug = false) {
    const auto texts = run_collect(world_size, [&](const Rank& rank) {
      ProcessGroupOptions options = patient();
      options.check_collectives = debug;
      Group group(options);
      const std::string text = group_usage_error([&] { action(rank.rank, group.comm); });
      const std::string stamp =
          "[rank " + std::to_string(rank.rank) + " of " + std::to_string(rank.world_size) + "] ";
      EXPECT_THAT(text, StartsWith(stamp));
      EXPECT_TRUE(
          same(gather(group.comm, torch::tensor(rank.rank)), torch::arange(rank.world_size)));
      return text.substr(std::min(stamp.size(), text.size()));
    });
    const auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
    for (const std::string& text : texts) EXPECT_EQ(first_line(text), first_line(texts[0]));
    return texts[0];
  }
};

TEST_F(OperationErrors, ALoneNumberOrStringHasNothingToGather) {
  for (const int ranks : {1, 2}) {
    EXPECT_EQ(refusal(ranks,
                      [](int, Communicator& comm) {
                        using Named = std::pair<at::Tensor, std::map<std::string, int>>;
                        (void)gather(comm, Named{torch::ones({2}), {{"epoch", 1}}});
                      }),
              "UsageError: `[1].epoch` is a lone number or string and has no rows to "
              "gather\n"
              "  at   gather\n"
              "  try  make it a tensor or a std::vector, or use gather_object");
  }
  EXPECT_THAT(refusal(2, [](int, Communicator& comm) { (void)gather(comm, std::string("a")); }),
              HasSubstr("the value is a lone number or string"));
}

// The same with and without ACCELERATE_DEBUG_MODE.
TEST_F(OperationErrors, AShapeThatDoesNotFitIsNamedWithItsPlaceAndRank) {
  for (const bool debug : {false, true}) {
    const auto value = [](int rank) {
      Output output;
      output.logits = torch::ones({4, rank == 2 ? 12 : 10});
      output.loss = torch::tensor(1.0);
      return output;
    };
    EXPECT_EQ(refusal(
                  4, [&](int rank, Communicator& comm) { (void)gather(comm, value(rank)); }, debug),
              "UsageError: `logits` of rank 2 differs from the others: ranks 0, 1 and 3 have Float "
              "[4, 10] on cpu; rank 2 has Float [4, 12] on cpu\n"
              "  at   gather\n"
              "  try  only the number of rows may differ between ranks: see pad_across_processes");
    EXPECT_THAT(refusal(
                    2,
                    [&](int rank, Communicator& comm) {
                      (void)gather_for_metrics(comm, BatchInfo{.size = 4, .valid = 2},
                                               torch::ones({4}), torch::ones({4, 2 + rank}));
                    },
                    debug),
                StartsWith("UsageError: `[1]` differs between ranks: rank 0 has Float [2, 2] on "
                           "cpu; rank 1 has Float [2, 3] on cpu\n  at   gather_for_metrics"));
    EXPECT_THAT(
        refusal(
            3,
            [&](int rank, Communicator& comm) {
              using Scores = std::map<std::string, at::Tensor>;
              (void)reduce(comm, Scores{{"a", torch::ones({2})}, {"b", torch::ones({rank})}});
            },
            debug),
        StartsWith("UsageError: `b` differs between ranks: rank 0 has Float [0] on cpu; rank 1 has "
                   "Float [1] on cpu; rank 2 has Float [2] on cpu\n  at   reduce"));
    EXPECT_THAT(refusal(
                    3,
                    [&](int rank, Communicator& comm) {
                      (void)broadcast(comm, torch::ones({2}, rank == 0 ? at::kInt : at::kFloat));
                    },
                    debug),
                StartsWith("UsageError: the value of rank 0 differs from the others: ranks 1 and 2 "
                           "have Float [2] on cpu; rank 0 has Int [2] on cpu\n  at   broadcast"));
    EXPECT_THAT(
        refusal(
            2,
            [&](int rank, Communicator& comm) {
              (void)pad_across_processes(comm, rank == 0 ? torch::ones({2}) : torch::ones({2, 2}));
            },
            debug),
        HasSubstr("rank 0 has Float [2] on cpu; rank 1 has Float [2, 2] on cpu"));
  }
}

TEST_F(OperationErrors, ATensorWithoutDimensionsOnSomeRanksDoesNotFit) {
  EXPECT_THAT(refusal(3,
                      [](int rank, Communicator& comm) {
                        (void)gather(comm, rank == 1 ? torch::tensor(1.F) : torch::ones({1}));
                      }),
              HasSubstr("the value of rank 1 differs from the others: ranks 0 and 2 have Float [1] "
                        "on cpu; rank 1 has Float [] on cpu"));
}

TEST_F(OperationErrors, StructuresThatDifferAreNamed) {
  EXPECT_THAT(refusal(2,
                      [](int rank, Communicator& comm) {
                        std::map<std::string, at::Tensor> value{{"a", torch::ones({1})}};
                        if (rank == 1) value["b"] = torch::ones({1});
                        (void)gather(comm, value);
                      }),
              HasSubstr("the value differs between ranks: rank 0 has 1 entry: `a`; rank 1 has 2 "
                        "entries: `a`, `b`"));
  EXPECT_THAT(refusal(3,
                      [](int rank, Communicator& comm) {
                        Everything value = everything(rank, 1);
                        if (rank == 2) value.layers.pop_back();
                        (void)broadcast(comm, value);
                      }),
              HasSubstr("`layers` of rank 2 differs from the others: ranks 0 and 1 have 2 entries; "
                        "rank 2 has 1 entry"));
  EXPECT_THAT(refusal(2,
                      [](int rank, Communicator& comm) {
                        Everything value = everything(rank, 1);
                        if (rank == 1) value.extra.reset();
                        (void)gather(comm, value);
                      }),
              HasSubstr("`extra`"));
  EXPECT_THAT(refusal(2,
                      [](int rank, Communicator& comm) {
                        Everything value = everything(rank, 1);
                        if (rank == 1) value.output.hidden = torch::ones({1});
                        (void)gather(comm, value);
                      }),
              HasSubstr("`output.hidden` differs between ranks: rank 0 has an undefined tensor; "
                        "rank 1 has Float [1] on cpu"));
}

TEST_F(OperationErrors, AProblemOfOneRankReachesAll) {
  const auto dense_on_others = [](int rank) {
    return rank == 1 ? torch::ones({2, 2}).to_sparse() : torch::ones({2, 2});
  };
  EXPECT_THAT(refusal(3,
                      [&](int rank, Communicator& comm) {
                        (void)gather(comm, Example(torch::ones({2}), dense_on_others(rank)));
                      }),
              HasSubstr("on rank 1: `target` is not a dense tensor"));
  EXPECT_THAT(refusal(3,
                      [&](int rank, Communicator& comm) {
                        (void)gather_object(comm, std::vector<at::Tensor>{dense_on_others(rank)});
                      }),
              AllOf(HasSubstr("on rank 1: `[0]`"), HasSubstr("Sparse")));
  EXPECT_THAT(refusal(3,
                      [&](int rank, Communicator& comm) {
                        (void)broadcast_object(comm, std::tuple(dense_on_others(rank)), 1);
                      }),
              AllOf(HasSubstr("on rank 1: `[0]`"), HasSubstr("broadcast_object")));
  EXPECT_THAT(refusal(2,
                      [&](int rank, Communicator& comm) {
                        (void)gather(comm, torch::ones({2}, rank == 0 ? at::kMeta : at::kCPU));
                      }),
              HasSubstr("on rank 0: the value cannot be sent: the tensor is on meta"));
  EXPECT_THAT(refusal(2, [&](int, Communicator& comm) { (void)gather(comm, at::Tensor()); }),
              StartsWith("UsageError: the value is an undefined tensor"));
}

TEST_F(OperationErrors, DifferentCallsAreNamed) {
  EXPECT_THAT(refusal(3,
                      [](int rank, Communicator& comm) {
                        const at::Tensor value = torch::ones({2});
                        if (rank == 0) (void)gather(comm, value);
                        if (rank == 1) (void)reduce(comm, value, "max");
                        if (rank == 2) (void)gather_object(comm, value);
                      }),
              StartsWith("UsageError: the ranks call different operations: rank 0 calls gather; "
                         "rank 1 calls reduce by max; rank 2 calls gather_object\n"));
}

TEST_F(OperationErrors, ReductionsThatHaveNoResultAreRefusedWithTheirPlace) {
  for (const int ranks : {1, 2}) {
    const auto counts = [] {
      return std::map<std::string, at::Tensor>{{"exact", torch::ones({1})},
                                               {"n", torch::ones({1}, at::kLong)}};
    };
    EXPECT_THAT(
        refusal(ranks, [&](int, Communicator& comm) { (void)reduce(comm, counts(), "mean"); }),
        StartsWith("UsageError: `n` is of Long, whose mean has no exact result\n  at   reduce"));
    EXPECT_THAT(
        refusal(ranks, [&](int, Communicator& comm) { (void)reduce(comm, counts(), "sum", 0.5); }),
        HasSubstr("`n` is of Long, which cannot be multiplied by a scale"));
    EXPECT_THAT(refusal(ranks, [](int, Communicator& comm) { (void)reduce(comm, 3, "mean"); }),
                HasSubstr("the value is of Long, whose mean"));
    EXPECT_THAT(refusal(ranks,
                        [](int, Communicator& comm) {
                          (void)reduce(comm, std::tuple(1.0, std::string("text")));
                        }),
                HasSubstr("`[1]` is not a number and cannot be reduced"));
    EXPECT_THAT(
        refusal(ranks,
                [](int, Communicator& comm) { (void)reduce(comm, torch::ones({2}, at::kShort)); }),
        HasSubstr("which can be moved between ranks but not reduced"));
  }
  EXPECT_THAT(refusal(3,
                      [](int, Communicator& comm) {
                        (void)reduce(comm, std::pair<int8_t, int>{int8_t{100}, 1});
                      }),
              HasSubstr("`[0]` cannot hold the result 300"));
  EXPECT_THAT(refusal(2,
                      [](int rank, Communicator& comm) {
                        (void)reduce(comm, rank == 0 ? ~uint64_t{0} : uint64_t{1});
                      }),
              HasSubstr("on rank 0: the value holds a number of more than 63 bits"));
  EXPECT_THAT(group_usage_error([] { (void)Reduction("median"); }, /*of_a_group=*/false),
              AllOf(HasSubstr("unknown reduction `median`"), HasSubstr("sum, mean, max, min")));
}

TEST_F(OperationErrors, ARootThatIsNoRankIsRefused) {
  for (const int ranks : {1, 2}) {
    for (const int root : {-1, 2}) {
      EXPECT_THAT(
          refusal(ranks,
                  [&](int, Communicator& comm) { (void)broadcast(comm, torch::ones({1}), root); }),
          HasSubstr("root " + std::to_string(root) + " is not a rank"));
      EXPECT_THAT(
          refusal(ranks, [&](int, Communicator& comm) { (void)broadcast_object(comm, 1, root); }),
          HasSubstr("root " + std::to_string(root) + " is not a rank"));
    }
  }
}

}  // namespace
}  // namespace accelerate::test
