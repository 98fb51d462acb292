#include "turns.h"

#include <algorithm>
#include <stdexcept>

#include "paired_times.h"

namespace bench {

Contender timed(std::string name, std::function<int64_t()> pass) {
  return {std::move(name), [pass = std::move(pass)] {
            const Stopwatch watch;
            const int64_t items = pass();
            return watch.seconds() / static_cast<double>(items);
          }};
}

Turns::Turns(const std::vector<Contender>& contenders, int repetitions)
    : times_(contenders.size()) {
  for (const Contender& contender : contenders) {
    names_.push_back(contender.name);
    contender.run();
  }
  for (size_t repetition = 0; repetition < static_cast<size_t>(repetitions); ++repetition) {
    for (size_t turn = 0; turn < contenders.size(); ++turn) {
      const size_t which = (repetition + turn) % contenders.size();
      times_[which].push_back(contenders[which].run());
    }
  }
}

const std::vector<double>& Turns::times_of(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) throw std::logic_error("nothing was measured by the name " + name);
  return times_[static_cast<size_t>(found - names_.begin())];
}

double Turns::speed(const std::string& tested, const std::string& reference) const {
  const std::vector<double>& ours = times_of(tested);
  const std::vector<double>& theirs = times_of(reference);
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(theirs[i] / ours[i]);
  return quantile(std::move(ratios), 0.5);
}

nlohmann::json Turns::report() const {
  nlohmann::json rows = nlohmann::json::array();
  for (size_t i = 0; i < names_.size(); ++i) {
    rows.push_back({{"name", names_[i]},
                    {"p50_us", 1e6 * quantile(times_[i], 0.5)},
                    {"best_us", 1e6 * quantile(times_[i], 0)},
                    {"repetitions", times_[i].size()}});
  }
  return rows;
}

}  // namespace bench
