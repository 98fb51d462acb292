// Errors are thrown in one library and caught in another, or in the program: all must mean the same
// type.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <typeinfo>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "accelerate/tokenizers.h"

namespace accelerate {
namespace {

// The error of type T that `call` throws is of the very type that this program knows.
template <class T, class Call>
void expect_one_type(const Call& call) {
  try {
    call();
  } catch (const T& error) {
    EXPECT_EQ(&typeid(error), &typeid(T)) << "two copies of the type of " << error.what();
    return;
  } catch (const std::exception& error) {
    FAIL() << "caught as another type: " << error.what();
  }
  FAIL() << "nothing was thrown";
}

TEST(ErrorTypes, AnErrorOfTheCoreIsCaughtByItsType) {
  expect_one_type<UsageError>([] { parse_log_level("loud"); });
}

TEST(ErrorTypes, AnErrorOfTheTransformersLibraryIsCaughtByItsType) {
  expect_one_type<DataError>([] { Tokenizer::from_file("/nowhere/tokenizer.json"); });
}

TEST(ErrorTypes, TypesOfErrorsAreExported) {
  void* library = dlopen("libaccelerate.so.0", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const std::string name : {"5Error", "10UsageError", "11ConfigError", "9CommError",
                                 "15CheckpointError", "9DataError", "11WorkerError"}) {
    EXPECT_NE(dlsym(library, ("_ZTIN10accelerate" + name + "E").c_str()), nullptr) << dlerror();
  }
  dlclose(library);
}

}  // namespace
}  // namespace accelerate
