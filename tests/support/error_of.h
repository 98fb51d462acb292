// What an action throws, for tests that look into it.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <utility>

namespace accelerate::test {

// The error that `action` ends with, which must be of the type `E`.
template <class E, class Action>
E error_of(Action action) {
  try {
    action();
  } catch (const E& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return E({.what = "another error"});
  }
  ADD_FAILURE() << "no error";
  return E({.what = "no error"});
}

// The text of that error.
template <class E, class Action>
std::string error_text(Action action) {
  return error_of<E>(std::move(action)).what();
}

}  // namespace accelerate::test
