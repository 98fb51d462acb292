// expect: protected
#include <accelerate/errors.h>

void raise();
void raise() {
#ifdef MUST_FAIL
  throw accelerate::Error("Error", {.what = "the loader is not prepared"});
#else
  throw accelerate::UsageError({.what = "the loader is not prepared"});
#endif
}
