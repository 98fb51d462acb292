#include "comm/agreement.h"

#include <string>
#include <vector>

#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"

namespace accelerate::comm {

void check_on_all_ranks(Communicator& communicator, const char* operation,
                        const std::function<void()>& check) {
  std::string problem;  // the sentence, a line break, the hint
  try {
    check();
  } catch (const UsageError& error) {
    if (communicator.world_size() == 1) throw;
    problem = error.message() + "\n" + error.hint();
  }
  const std::vector<std::string> problems = communicator.all_gather_bytes(problem);
  for (size_t rank = 0; rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    const size_t end = problems[rank].find('\n');
    detail::throw_usage_error(communicator, {.what = "on rank " + std::to_string(rank) + ": " +
                                                     problems[rank].substr(0, end),
                                             .where = operation,
                                             .hint = problems[rank].substr(end + 1)});
  }
}

}  // namespace accelerate::comm
