// Values of all shapes for the tests of operations on nested values.
#pragma once

#include <accelerate/operations.h>

#include <array>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "multiproc/group.h"

namespace accelerate::test {

// Runs on 1 to 4 ranks.
struct OperationsOn : Ranks, testing::WithParamInterface<int> {
  void run_ranks(const RankBody& body, const RankOptions& options = {}) {
    run(GetParam(), body, options);
  }
};

struct Output {
  at::Tensor logits{};
  at::Tensor loss{};    // without dimensions
  at::Tensor hidden{};  // never defined
  std::vector<std::string> text{};
  std::vector<bool> flags{};
  ACCELERATE_FIELDS(logits, loss, hidden, text, flags)
};

using Example = torch::data::Example<at::Tensor, at::Tensor>;

struct Everything {
  Output output{};
  std::map<std::string, at::Tensor> scores{};
  std::unordered_map<std::string, std::vector<double>> weights{};
  std::vector<std::pair<at::Tensor, std::vector<int>>> layers{};
  std::optional<at::Tensor> extra{};
  Example example{};
  std::array<at::Tensor, 2> pair{};
  ACCELERATE_FIELDS(output, scores, weights, layers, extra, example, pair)
};

// Rows of `width` that hold 100 * rank + row.
inline at::Tensor rows_of(int rank, int64_t count, int64_t width = 1,
                          at::ScalarType dtype = at::kFloat) {
  const at::Tensor column = torch::arange(count, test_device()).unsqueeze(1) + 100 * rank;
  return column.expand({count, width}).to(dtype);
}

// What rank r holds: `rows` rows of everything.
inline Everything everything(int rank, int64_t rows) {
  Everything value;
  value.output.logits = rows_of(rank, rows, 3);
  value.output.loss = torch::tensor(0.5 + rank, at::kDouble);
  for (int64_t row = 0; row < rows; ++row) {
    value.output.text.push_back("rank " + std::to_string(rank) + " row " + std::to_string(row));
    value.output.flags.push_back((rank + row) % 2 == 0);
    value.weights["w"].push_back(rank + 0.25 * static_cast<double>(row));
  }
  value.weights["v"] = {};
  value.weights.try_emplace("w");
  value.scores = {{"half", rows_of(rank, rows, 2, at::kHalf)},
                  {"short", rows_of(rank, rows, 1, at::kShort)}};
  value.layers = {{rows_of(rank, rows, 5, at::kLong), {rank}}, {torch::tensor(rank), {}}};
  value.extra = rows_of(rank, rows, 2).t().contiguous().t();
  value.example = Example(rows_of(rank, rows, 0), torch::ones({rows}, at::kBool));
  value.pair = {rows_of(rank, rows, 300'000), torch::full({rows, 2, 2}, rank, at::kDouble)};
  return value;
}

// What gather() is to make of everything(r, rows[r]).
inline Everything expected_of(const std::vector<int64_t>& rows) {
  Everything all = everything(0, rows[0]);
  const auto as_row = [](at::Tensor& tensor) { tensor = tensor.reshape({1}); };
  as_row(all.output.loss);
  as_row(all.layers[1].first);
  for (int rank = 1; rank < static_cast<int>(rows.size()); ++rank) {
    Everything next = everything(rank, rows[static_cast<size_t>(rank)]);
    as_row(next.output.loss);
    as_row(next.layers[1].first);
    all = concatenate<Everything>({all, next});
  }
  return all;
}

// Compares leaf by leaf.
template <class V>
void expect_same(const V& actual, const V& expected) {
  const auto others = detail::addresses_of(expected);
  size_t place = 0;
  auto node = [&](const NestedPath& path, const auto& part) {
    using T = std::remove_cvref_t<decltype(part)>;
    ASSERT_LT(place, others.size());
    const T& other = *static_cast<const T*>(others[place++]);
    SCOPED_TRACE("at `" + path.str() + '`');
    if constexpr (std::is_same_v<T, at::Tensor>) {
      ASSERT_EQ(part.defined(), other.defined());
      if (part.defined()) {
        ASSERT_TRUE(same(part, other));
      }
    } else if constexpr (detail::HasShape<T>) {
      ASSERT_EQ(NestedTraits<T>::shape(part), NestedTraits<T>::shape(other));
    } else if constexpr (detail::kKindOf<T> != NestedKind::kStructure) {
      ASSERT_EQ(part, other);
    }
  };
  detail::walk(actual, node);
}

}  // namespace accelerate::test
