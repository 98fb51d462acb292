#include "compat/library_version.h"

namespace accelerate::compat {

const char* library_version() { return ACCELERATE_VERSION; }

}  // namespace accelerate::compat
