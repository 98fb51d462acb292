// A machine of a job that goes on after any of its machines was lost, the main one included.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/plan/machine_plan.h"
#include "launch/remote/job_control.h"
#include "launch/remote/main_control.h"
#include "launch/remote/member_control.h"

namespace accelerate::launch {

// Plays the main machine or another one, and takes the other part when the main machine was lost.
// Every start of an attempt tells each machine who takes part and where it is; the first of those
// that are left becomes the main machine, and the others connect to it, all without a word between
// them. One that does not come in time is passed over. A main machine that only fell silent is
// looked for first: the network may have come back.
//
// Which of two sides of a cut network goes on is decided where an attempt begins: see
// JobDirector::may_begin_with_fewer().
class ElasticControl : public JobControl {
 public:
  // `plan` has a range of machines, and outlives this object.
  explicit ElasticControl(const MachinePlan& plan);

  void report(const MachineReport& report) override;
  std::optional<Order> next_order() override;
  void add_descriptors(std::vector<pollfd>& fds) const override { part_->add_descriptors(fds); }
  void handle_descriptors(const pollfd* fds, size_t count) override;
  void handle_time() override;
  std::optional<std::chrono::steady_clock::time_point> deadline() const override {
    return part_->deadline();
  }
  void begin_farewell() override { part_->begin_farewell(); }
  bool wants_flush() const override { return part_->wants_flush(); }

 private:
  // Whom this machine looks to after the main one was lost, in turn; itself at the end.
  struct Candidate {
    int machine = 0;
    std::string address{};
    bool is_this = false;
  };

  void play_main(const std::optional<JobDirector::Inheritance>& inheritance);
  void play_member(MemberControl::GiveUp give_up);
  void change_part_if_due();
  void begin_succession();
  void try_next_candidate();
  void succeed(const std::string& address);
  int own_number() const { return part_plan_->machine_rank; }
  void tell(const std::string& text);

  const MachinePlan& plan_;
  std::unique_ptr<MachinePlan> part_plan_;  // of the present part: its main machine, its number
  std::unique_ptr<JobControl> part_;
  MemberControl* member_ = nullptr;  // part_, where that is one
  std::optional<MemberControl::Orphaned> orphaned_;
  std::deque<Candidate> candidates_;
  int candidate_ = 0;  // whom this machine looks for
  std::set<int> passed_over_;
  std::deque<Order> notes_;
};

}  // namespace accelerate::launch
