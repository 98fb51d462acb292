// Stands in for libpython3.11.so.1.0, of which _XLAC names 168 symbols. Without an interpreter it
// calls Py_IsInitialized() alone, and takes the answer no.
#include <cstdio>
#include <cstdlib>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

[[noreturn]] void refuse_call_of_python(const char* name) {
  std::fprintf(stderr, "accelerate: torch_xla called %s, and there is no Python\n", name);
  std::abort();
}

}  // namespace

EXPORTED int Py_IsInitialized() { return 0; }
EXPORTED int PyGILState_Check() { return 0; }

// Objects whose address alone is asked for; room for the largest of them.
#define OBJECT(name)        \
  EXPORTED char name[1024]; \
  char name[1024];
#define FUNCTION(name) \
  EXPORTED void name() { refuse_call_of_python(#name); }
#include "python_symbols.def"
