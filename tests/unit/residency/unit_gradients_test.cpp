// When all gradients of a unit are there.
#include "residency/touch/unit_gradients.h"

#include <gmock/gmock.h>

#include <vector>

#include "unit/residency/touched_chain.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(UnitGradients, SayWhenAUnitIsCompleteAndWhatIsMissing) {
  Chain net = chain(4);
  net->order = {0, 1, 3};
  LoneUnits lone(*net);
  std::vector<size_t> complete;
  residency::UnitGradients gradients(lone.units, [&](size_t unit) {
    complete.push_back(unit);
    lone.units.gradient_done(unit);
  });
  net->forward(input()).sum().backward();  // not counted
  EXPECT_THAT(complete, IsEmpty());
  gradients.begin_pass();
  net->forward(input()).sum().backward();
  (net->links[2]->bias * 2).sum().backward();
  const auto unfinished = gradients.end_pass();
  EXPECT_THAT(complete, ElementsAre(3, 1, 0));
  ASSERT_EQ(unfinished.size(), 1U);
  EXPECT_EQ(unfinished[0].unit, 2U);
  EXPECT_FALSE(unfinished[0].is_untouched);
  EXPECT_FALSE(gradients.has_come(2, 0));
  EXPECT_TRUE(gradients.has_come(2, 1));
}

TEST(UnitGradients, ThatAreToBeDifferentiatedAreRefused) {
  Chain net = chain(1);
  LoneUnits lone(*net);
  residency::UnitGradients gradients(lone.units, [](size_t) {});
  gradients.begin_pass();
  const at::Tensor loss = net->forward(input()).sum();
  EXPECT_THAT(refusal_of([&] { loss.backward({}, true, true); }), HasSubstr("create_graph"));
}

}  // namespace
}  // namespace accelerate::test
