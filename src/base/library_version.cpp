#include "base/library_version.h"

namespace accelerate {

const char* library_version() { return ACCELERATE_VERSION; }

}  // namespace accelerate
