// Ranges of elements as boxes.
#include <accelerate/errors.h>
#include <accelerate/tensor_box.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

namespace accelerate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(TensorBox, OfARangeIsRowsAndWhatIsLeftBeforeAndAfter) {
  EXPECT_THAT(
      boxes_of_range({3, 4}, 2, 11),
      ElementsAre(TensorBox{{0, 2}, {1, 2}}, TensorBox{{1, 0}, {1, 4}}, TensorBox{{2, 0}, {1, 3}}));
  EXPECT_THAT(boxes_of_range({3, 4}, 0, 12), ElementsAre(TensorBox{{0, 0}, {3, 4}}));
  EXPECT_THAT(boxes_of_range({3, 4}, 5, 7), ElementsAre(TensorBox{{1, 1}, {1, 2}}));
  EXPECT_THAT(boxes_of_range({7}, 2, 5), ElementsAre(TensorBox{{2}, {3}}));
  EXPECT_THAT(boxes_of_range({}, 0, 1), ElementsAre(TensorBox{{}, {}}));
  EXPECT_THAT(boxes_of_range({3, 4}, 5, 5), IsEmpty());
  EXPECT_THAT(boxes_of_range({0, 4}, 0, 0), IsEmpty());
  EXPECT_EQ((TensorBox{{1, 0}, {2, 4}}.numel()), 8);
}

TEST(TensorBox, OfAnyRangeHoldsItsElementsInOrder) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {5}, {3, 4}, {2, 3, 4}, {3, 1, 2, 2}, {1, 1, 6}}) {
    const at::Tensor numbers = torch::arange(c10::multiply_integers(shape)).view(shape);
    for (int64_t begin = 0; begin <= numbers.numel(); ++begin) {
      for (int64_t end = begin; end <= numbers.numel(); ++end) {
        std::vector<int64_t> held;
        const auto boxes = boxes_of_range(shape, begin, end);
        EXPECT_LE(boxes.size(), std::max<size_t>(2 * shape.size(), 2) - 1);
        for (const TensorBox& box : boxes) {
          at::Tensor part = numbers;
          for (size_t i = 0; i < shape.size(); ++i) {
            part = part.narrow(static_cast<int64_t>(i), box.start[i], box.shape[i]);
          }
          EXPECT_EQ(part.numel(), box.numel());
          part = part.contiguous();
          held.insert(held.end(), part.data_ptr<int64_t>(),
                      part.data_ptr<int64_t>() + part.numel());
        }
        std::vector<int64_t> expected;
        for (int64_t i = begin; i < end; ++i) expected.push_back(i);
        EXPECT_EQ(held, expected);
      }
    }
  }
}

TEST(TensorBox, OfARangeThatIsNotThereIsRefused) {
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{-1, 2}, {3, 2}, {0, 13}}) {
    const auto make = [begin = begin, end = end] { boxes_of_range({3, 4}, begin, end); };
    EXPECT_THAT(make, testing::ThrowsMessage<UsageError>(
                          testing::HasSubstr("a tensor of 12 elements has no elements from")));
  }
}

}  // namespace
}  // namespace accelerate
