#include "checkpoint/state_version.h"

namespace accelerate::checkpoint {

std::string_view library_version() { return ACCELERATE_VERSION; }

}  // namespace accelerate::checkpoint
