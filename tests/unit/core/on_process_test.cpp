#include <accelerate/errors.h>
#include <accelerate/process_control.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "unit/core/fake_rank.h"

namespace accelerate {
namespace {

using test::fake_rank;
using testing::ElementsAre;

// The ranks of two machines with two processes each on which `wrap(state, function)` runs it.
template <class Wrap>
std::vector<int> ranks_that_run(Wrap wrap) {
  std::vector<int> ran;
  for (int rank = 0; rank < 4; ++rank) {
    const ProcessState state = fake_rank(rank, 4, 2);
    wrap(state, [&ran, rank] { ran.push_back(rank); })();
  }
  return ran;
}

TEST(OnProcess, RunsOnTheProcessThatItNames) {
  EXPECT_THAT(ranks_that_run([](const auto& s, auto f) { return on_main_process(s, f); }),
              ElementsAre(0));
  EXPECT_THAT(ranks_that_run([](const auto& s, auto f) { return on_local_main_process(s, f); }),
              ElementsAre(0, 2));
  EXPECT_THAT(ranks_that_run([](const auto& s, auto f) { return on_last_process(s, f); }),
              ElementsAre(3));
  EXPECT_THAT(ranks_that_run([](const auto& s, auto f) { return on_process(s, 2, f); }),
              ElementsAre(2));
  EXPECT_THAT(ranks_that_run([](const auto& s, auto f) { return on_local_process(s, 1, f); }),
              ElementsAre(1, 3));
}

TEST(OnProcess, GivesTheResultWhereItRanAndNoneElsewhere) {
  const auto add = [](int a, int b) { return a + b; };
  const auto here = on_main_process(fake_rank(0, 2), add);
  const auto elsewhere = on_main_process(fake_rank(1, 2), add);
  static_assert(std::is_same_v<decltype(here(1, 2)), std::optional<int>>);
  EXPECT_EQ(here(1, 2), 3);
  EXPECT_EQ(elsewhere(1, 2), std::nullopt);
  EXPECT_TRUE(here.runs_here());
  EXPECT_FALSE(elsewhere.runs_here());
}

TEST(OnProcess, AFunctionThatReturnsNothingStillReturnsNothing) {
  auto nothing = on_main_process(fake_rank(0, 1), [](const std::string&) {});
  static_assert(std::is_void_v<decltype(nothing("text"))>);
  nothing("text");
}

TEST(OnProcess, AReferenceBecomesAPointerToTheSameObject) {
  std::string text = "a";
  const auto first = [&text]() -> std::string& { return text; };
  EXPECT_EQ(on_main_process(fake_rank(0, 2), first)(), &text);
  EXPECT_EQ(on_main_process(fake_rank(1, 2), first)(), nullptr);
}

TEST(OnProcess, TakesFunctionsAndArgumentsThatCanOnlyBeMoved) {
  auto own = std::make_unique<int>(40);
  auto sum = on_main_process(fake_rank(0, 1), [own = std::move(own)](std::unique_ptr<int> other) {
    return std::make_unique<int>(*own + *other);
  });
  auto moved = std::move(sum);
  const std::optional<std::unique_ptr<int>> result = moved(std::make_unique<int>(2));
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(**result, 42);
}

TEST(OnProcess, ACopyHasTheStateOfItsFunctionToItself) {
  auto counter = on_main_process(fake_rank(0, 1), [count = 0]() mutable { return ++count; });
  EXPECT_EQ(counter(), 1);
  auto copy = counter;
  EXPECT_EQ(counter(), 2);
  EXPECT_EQ(copy(), 2);
}

int twice(int value) { return 2 * value; }

TEST(OnProcess, TakesPlainFunctionsAndMembers) {
  EXPECT_EQ(on_last_process(fake_rank(0, 1), twice)(21), 42);
  EXPECT_EQ(on_main_process(fake_rank(0, 1), &std::string::size)(std::string("four")), 4u);
}

TEST(OnProcess, ArgumentsAreLeftAloneElsewhere) {
  auto take = on_main_process(fake_rank(1, 2), [](std::unique_ptr<int>) {});
  auto kept = std::make_unique<int>(1);
  take(std::move(kept));
  EXPECT_NE(kept, nullptr);  // NOLINT(bugprone-use-after-move): that is the point
}

TEST(OnProcess, WhatTheFunctionThrowsPasses) {
  const auto fail = [] { throw std::runtime_error("disk full"); };
  EXPECT_THROW(on_main_process(fake_rank(0, 2), fail)(), std::runtime_error);
  EXPECT_NO_THROW(on_main_process(fake_rank(1, 2), fail)());
}

std::string message_of(const ProcessState& state, int index, bool local) {
  try {
    if (local) {
      on_local_process(state, index, [] {})();
    } else {
      on_process(state, index, [] {})();
    }
  } catch (const UsageError& error) {
    return error.message();
  }
  return "nothing was thrown";
}

TEST(OnProcess, RefusesAnIndexThatNoProcessHas) {
  const ProcessState state = fake_rank(0, 4, 2);
  EXPECT_EQ(message_of(state, 4, false), "there is no process 4 among 4");
  EXPECT_EQ(message_of(state, -1, false), "there is no process -1 among 4");
  EXPECT_EQ(message_of(state, 2, true), "there is no process 2 among 2");
  EXPECT_EQ(message_of(state, 3, false), "nothing was thrown");
}

}  // namespace
}  // namespace accelerate
