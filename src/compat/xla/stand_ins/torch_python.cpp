// Stands in for libtorch_python.so, of which _XLAC names 16 symbols and which would load all of
// CUDA. Functions have the mangled names of those that they stand for.
#include <cstdio>
#include <cstdlib>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

[[noreturn]] void refuse_binding(const char* name) {
  std::fprintf(stderr, "accelerate: torch_xla called %s, and there is no Python\n", name);
  std::abort();
}

}  // namespace

// Only bindings of Python look at these.
EXPORTED void* ParameterClass;
EXPORTED void* THPVariableClass;
EXPORTED void* THPGeneratorClass;
EXPORTED void* THPStreamClass;
EXPORTED char THPDeviceType[1024];
EXPORTED char THPDtypeType[1024];
EXPORTED char THPLayoutType[1024];
EXPORTED char THPQSchemeType[1024];
void* ParameterClass;
void* THPVariableClass;
void* THPGeneratorClass;
void* THPStreamClass;
char THPDeviceType[1024];
char THPDtypeType[1024];
char THPLayoutType[1024];
char THPQSchemeType[1024];

// torch::PyWarningHandler: without it warnings go where libtorch writes them.
EXPORTED void _ZN5torch16PyWarningHandlerC1Ev(void* /*self*/) {}
EXPORTED void _ZN5torch16PyWarningHandlerD1Ev(void* /*self*/) {}

// torch::lazy::GetPythonFrames(): an empty std::vector, returned where the caller says.
EXPORTED void* _ZN5torch4lazy15GetPythonFramesEv(void** result) {
  result[0] = result[1] = result[2] = nullptr;
  return result;
}

EXPORTED void _Z16getPyInterpreterv() { refuse_binding("getPyInterpreter"); }
EXPORTED void _ZN5torch3jit10toPyObjectEN3c106IValueE() { refuse_binding("toPyObject"); }
EXPORTED void
_ZN5torch3jit8toIValueEN8pybind116handleERKN3c104Type24SingletonOrSharedTypePtrIS4_EESt8optionalIiE() {
  refuse_binding("toIValue");
}
// pybind11's casters of at::Tensor.
EXPORTED void _ZN8pybind116detail11type_casterIN2at6TensorEvE4loadENS_6handleEb() {
  refuse_binding("type_caster<at::Tensor>::load");
}
EXPORTED void
_ZN8pybind116detail11type_casterIN2at6TensorEvE4castERKS3_NS_19return_value_policyENS_6handleE() {
  refuse_binding("type_caster<at::Tensor>::cast");
}
