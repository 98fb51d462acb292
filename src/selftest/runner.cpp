#include "selftest/runner.h"

#include <accelerate/errors.h>
#include <accelerate/operations.h>

namespace accelerate::selftest {
namespace {

// What one rank says.
struct Verdict {
  Status status = Status::kPassed;
  bool lost_peer = false;
  std::string text{};
  std::vector<Metric> metrics{};
  ACCELERATE_FIELDS(status, lost_peer, text, metrics)
};

std::string without_stack(const char* text) {
  const std::string all(text);
  return all.substr(0, all.find("\nException raised from"));
}

Verdict failed(std::string text, bool lost_peer = false) {
  return {.status = Status::kFailed, .lost_peer = lost_peer, .text = std::move(text)};
}

// `accelerator` gives the one for the check, and may fail as the check may.
template <class GetAccelerator>
Verdict verdict_of(const Check& check, GetAccelerator accelerator) {
  try {
    Findings findings = check.run(accelerator());
    return {.text = std::move(findings.detail), .metrics = std::move(findings.metrics)};
  } catch (const Skipped& reason) {
    return {.status = Status::kSkipped, .text = reason.what()};
  } catch (const CommError& error) {
    return failed(error.message(), true);
  } catch (const Error& error) {
    return failed(error.message());
  } catch (const std::exception& error) {
    return failed(without_stack(error.what()));
  } catch (...) {
    return failed("an exception that is not a std::exception");
  }
}

CheckResult combine(const Check& check, const std::vector<Verdict>& verdicts) {
  CheckResult result{.family = check.family,
                     .name = check.name,
                     .status = verdicts[0].status,
                     .detail = verdicts[0].text,
                     .metrics = verdicts[0].metrics};
  bool cause_is_known = false;
  for (const Verdict& verdict : verdicts) {
    if (verdict.status != verdicts[0].status) result.status = Status::kFailed;
    if (verdict.status == Status::kFailed && !verdict.lost_peer) cause_is_known = true;
  }
  if (result.status != Status::kFailed) return result;
  result.detail.clear();
  result.metrics.clear();
  for (size_t rank = 0; rank < verdicts.size(); ++rank) {
    const Verdict& verdict = verdicts[rank];
    if (verdict.status == Status::kPassed || (verdict.lost_peer && cause_is_known)) continue;
    const bool skipped = verdict.status == Status::kSkipped;
    result.failures.push_back(
        {.rank = static_cast<int>(rank),
         .text = (skipped ? "skipped by this rank alone: " : "") + verdict.text});
  }
  return result;
}

}  // namespace

Accelerator& Runner::accelerator_for(const Check& check) {
  if (accelerator_ && is_shared_ && check.shares_accelerator) return *accelerator_;
  AcceleratorOptions options = check.options;
  options.strategy = strategy_;
  options.process_group.timeout = timeout_;
  options.process_group.rendezvous_timeout = timeout_;
  accelerator_.reset();
  accelerator_.emplace(std::move(options));
  is_shared_ = check.shares_accelerator;
  return *accelerator_;
}

CheckResult Runner::run(const Check& check) {
  const auto start = std::chrono::steady_clock::now();
  const Verdict own = verdict_of(check, [&]() -> Accelerator& { return accelerator_for(check); });
  const auto duration = std::chrono::steady_clock::now() - start;
  // Others may wait for this rank inside the check: closed connections let them go.
  if (own.status == Status::kFailed) accelerator_.reset();
  CheckResult result = combine(check, gather_object(control_, own));
  if (result.status == Status::kFailed) accelerator_.reset();
  result.duration = duration;
  return result;
}

}  // namespace accelerate::selftest
