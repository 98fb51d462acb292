// How checks compare: what is not as expected becomes a Mismatch that says both.
#pragma once

#include <ATen/core/Tensor.h>

#include <sstream>
#include <string>
#include <vector>

#include "selftest/check.h"

namespace accelerate::selftest {

// "[1, 2, 3]" or "[1, 2, ... 98 more]"; scalars without brackets.
std::string show(const at::Tensor& tensor);
template <class T>
std::string show(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}
template <class T>
std::string show(const std::vector<T>& values) {
  constexpr size_t kShown = 8;
  std::string text = "[";
  for (size_t i = 0; i < values.size() && i < kShown; ++i) {
    text += (i == 0 ? "" : ", ") + show(values[i]);
  }
  if (values.size() > kShown) text += ", ... " + std::to_string(values.size() - kShown) + " more";
  return text + "]";
}

[[noreturn]] void mismatch(const std::string& what, const std::string& expected,
                           const std::string& got);

template <class T>
void expect_equal(const std::string& what, const T& got, const T& expected) {
  if (!(got == expected)) mismatch(what, show(expected), show(got));
}
// Equal in dtype, shape and every value, wherever they are.
void expect_same(const std::string& what, const at::Tensor& got, const at::Tensor& expected);
// All values within `tolerance`, relative to one where they are small.
void expect_near(const std::string& what, const at::Tensor& got, const at::Tensor& expected,
                 double tolerance);
void expect_true(const std::string& what, bool holds);

// All parameters of a module, one after the other, as doubles on the CPU.
at::Tensor flat(const std::vector<at::Tensor>& tensors);

}  // namespace accelerate::selftest
