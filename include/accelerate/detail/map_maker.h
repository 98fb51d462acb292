// Makes the batches of a pass over a dataset that is read by index. Internal: users do not
// call it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "accelerate/detail/feed.h"
#include "accelerate/detail/fetch.h"
#include "accelerate/detail/pass_plan.h"

namespace accelerate::detail {

template <class Dataset, class Collate>
class MapMaker {
 public:
  using Value = decltype(fetch(std::declval<Dataset&>(), {}, std::declval<const Collate&>(), {},
                               std::declval<const StopFlag&>()));
  using Draft = int64_t;  // the number of the batch

  // `collate` may be called by several threads at once.
  MapMaker(std::shared_ptr<Dataset> dataset, std::shared_ptr<const Collate> collate,
           const PassSpec& spec)
      : dataset_(std::move(dataset)),
        collate_(std::move(collate)),
        plan_(make_plan(spec)),
        context_{.seed = spec.seed, .epoch = spec.epoch} {}

  bool draw(Draft& number) {
    if (drawn_ == plan_->rounds()) return false;
    number = drawn_++;
    return true;
  }

  Produced<Value> build(Draft number, const StopFlag& stop) const {
    PlannedBatch planned;
    plan_->read(number, planned);
    return {fetch(*dataset_, planned.indices, *collate_, context_, stop), planned.info,
            planned.position};
  }

 private:
  std::shared_ptr<Dataset> dataset_;
  std::shared_ptr<const Collate> collate_;
  std::shared_ptr<const PassPlan> plan_;
  SampleContext context_;
  int64_t drawn_ = 0;
};

}  // namespace accelerate::detail
