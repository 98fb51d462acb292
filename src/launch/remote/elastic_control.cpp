#include "launch/remote/elastic_control.h"

#include <utility>

#include "accelerate/errors.h"

namespace accelerate::launch {

ElasticControl::ElasticControl(const MachinePlan& plan)
    : plan_(plan), part_plan_(std::make_unique<MachinePlan>(plan)) {
  if (plan.machine_rank == 0) {
    play_main(std::nullopt);
  } else {
    play_member(MemberControl::GiveUp::kFinishes);
  }
}

void ElasticControl::play_main(const std::optional<JobDirector::Inheritance>& inheritance) {
  part_.reset();
  member_ = nullptr;
  part_ = std::make_unique<MainControl>(*part_plan_, inheritance);
}

void ElasticControl::play_member(MemberControl::GiveUp give_up) {
  auto member = std::make_unique<MemberControl>(*part_plan_, give_up);
  member_ = member.get();
  part_ = std::move(member);
}

void ElasticControl::report(const MachineReport& report) {
  part_->report(report);
  change_part_if_due();
}

void ElasticControl::handle_descriptors(const pollfd* fds, size_t count) {
  part_->handle_descriptors(fds, count);
  change_part_if_due();
}

void ElasticControl::handle_time() {
  part_->handle_time();
  change_part_if_due();
}

std::optional<Order> ElasticControl::next_order() {
  if (notes_.empty()) return part_->next_order();
  Order note = std::move(notes_.front());
  notes_.pop_front();
  return note;
}

void ElasticControl::tell(const std::string& text) {
  if (plan_.quiet || plan_.is_agent) return;
  notes_.push_back({.kind = Order::Kind::kNote, .text = "accelerate launch: " + text + "\n"});
}

void ElasticControl::change_part_if_due() {
  if (member_ == nullptr) return;
  if (member_->orphaned()) {
    begin_succession();
  } else if (member_->gave_up()) {
    passed_over_.insert(candidate_);
    try_next_candidate();
  }
}

void ElasticControl::begin_succession() {
  orphaned_ = member_->orphaned();
  notes_.push_back({.kind = Order::Kind::kNote, .text = "error: " + orphaned_->why + "\n"});
  candidates_.clear();
  passed_over_.clear();
  const Roster& roster = orphaned_->last_start.roster;
  if (!orphaned_->main_has_ended) candidates_.push_back({.address = part_plan_->main_address});
  for (size_t i = 1; i < roster.size(); ++i) {
    const bool is_this = roster[i].machine == own_number();
    candidates_.push_back(
        {.machine = roster[i].machine, .address = roster[i].address, .is_this = is_this});
    if (is_this) break;
  }
  try_next_candidate();
}

void ElasticControl::try_next_candidate() {
  const Candidate candidate = std::move(candidates_.front());
  candidates_.pop_front();
  candidate_ = candidate.machine;
  if (candidate.is_this) {
    succeed(candidate.address);
    return;
  }
  auto plan = std::make_unique<MachinePlan>(*part_plan_);
  plan->main_address = candidate.address;
  plan->run_id = orphaned_->last_start.run_id;
  // Until it has ended its workers and knows as well that the main machine was lost.
  plan->join_timeout = plan_.machine_timeout + plan_.failure_grace;
  tell("looking for machine " + candidate.address + " as the main one");
  part_.reset();  // before its plan
  part_plan_ = std::move(plan);
  play_member(MemberControl::GiveUp::kIsTold);
}

void ElasticControl::succeed(const std::string& address) {
  const Order& last = orphaned_->last_start;
  passed_over_.erase(0);  // this one has the number of the former main machine now
  JobDirector::Inheritance inheritance{.attempt = last.attempt + 1,
                                       .missing = passed_over_,
                                       .main_has_ended = orphaned_->main_has_ended};
  for (size_t i = 1; i < last.roster.size(); ++i) {
    const int machine = last.roster[i].machine;
    inheritance.machines.insert(machine == own_number() ? 0 : machine);
  }
  const int former_number = own_number();
  auto plan = std::make_unique<MachinePlan>(*part_plan_);
  plan->main_address = address;
  plan->machine_rank = 0;
  plan->run_id = last.run_id;
  plan->join_timeout = plan_.join_timeout;
  plan->same_network = false;
  part_.reset();
  part_plan_ = std::move(plan);
  tell("this is the main machine now, at " + address + ":" + std::to_string(plan_.main_port) +
       ", for restart " + std::to_string(inheritance.attempt) + " of " +
       std::to_string(plan_.max_restarts) + "; others may join as machine " +
       std::to_string(former_number));
  play_main(inheritance);
}

}  // namespace accelerate::launch
