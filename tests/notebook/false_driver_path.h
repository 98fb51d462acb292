// Where the build has put the library of false_driver.cpp.
#pragma once

namespace accelerate::test {

const char* false_driver_path();

}  // namespace accelerate::test
