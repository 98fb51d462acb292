// Which of several failures was the first, and what it is called.
#pragma once

#include <optional>
#include <vector>

#include "accelerate/notebook.h"
#include "notebook/guardian.h"

namespace accelerate::notebook {

// The error of the worker that failed first, stamped with its rank; nothing if all succeeded.
// Workers that were told to end count only where no other is left. An exception of a worker's own
// comes before a death, and that before a lost connection, which is what the others see of it.
std::optional<WorkerError> first_failure(const std::vector<ForkedEnd>& ends, int world_size);

}  // namespace accelerate::notebook
