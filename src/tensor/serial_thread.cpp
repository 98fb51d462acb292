#include "tensor/serial_thread.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace accelerate {

void make_thread_serial() {
  at::get_num_threads();  // libtorch sets a new thread's number on the first call
  // The number is a setting of the calling thread in OpenMP. Looked up at run time: libtorch brings
  // an OpenMP library of its own, and a second one must not be linked.
  using SetNumThreads = void (*)(int);
  static const auto set =
      reinterpret_cast<SetNumThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(1);
}

}  // namespace accelerate
