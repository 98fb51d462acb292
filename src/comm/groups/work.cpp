#include "accelerate/work.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "comm/groups/communicator_impl.h"

namespace accelerate {

Work::State::State(std::shared_ptr<Communicator::Impl> group, const Event& begun,
                   device::CollectiveWorkPtr work, std::function<void()> finish)
    : group_(std::move(group)), begun_(begun), work_(std::move(work)), finish_(std::move(finish)) {
  group_->open_works().add(begun_.number, [asked = work_.get()] { return asked->is_done(); });
}

Work::State::~State() {
  if (!work_) return;
  group_->open_works().remove(begun_.number);
  group_->log().end(begun_.number);  // nobody will wait for it
}

void Work::State::wait() {
  if (error_) std::rethrow_exception(error_);
  if (!work_) return;
  group_->open_works().remove(begun_.number);
  const auto work = std::exchange(work_, nullptr);
  const auto finish = std::exchange(finish_, nullptr);
  try {
    group_->wait_for(begun_, *work);
    const at::NoGradGuard no_grad;
    if (finish) finish();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

bool Work::State::done() const { return !work_ || work_->is_done(); }

Work::Work() = default;
Work::Work(std::unique_ptr<State> state) : state_(std::move(state)) {}
Work::~Work() = default;
Work::Work(Work&& other) noexcept = default;
Work& Work::operator=(Work&& other) noexcept = default;

void Work::wait() {
  if (state_) state_->wait();
}

bool Work::done() const { return !state_ || state_->done(); }

}  // namespace accelerate
