#include "notebook/false_driver_path.h"

namespace accelerate::test {

const char* false_driver_path() { return ACCELERATE_FALSE_DRIVER; }

}  // namespace accelerate::test
