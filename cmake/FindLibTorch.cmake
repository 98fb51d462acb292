# Finds libtorch and makes one imported target, LibTorch::LibTorch, without torch's own CMake package (which asks
# for nvcc) and without a CUDA toolkit.
#
# Searched in this order, the first that is given or found wins:
#   1. -DTorch_DIR=... or -DLIBTORCH=... (CMake or environment): a torch package or an unpacked libtorch; for
#      Torch_DIR also its share/cmake/Torch
#   2. in the installed package: the torch that the installation was told of (LibTorch_TOLD: links or folders)
#   3. the torch that `python3` would import
#   4. .deps/python/torch beside the top CMakeLists.txt, where scripts/setup.sh puts the wheel
#
# A torch that was named but cannot be used is an error; it is never skipped in favour of another. The installed package
# takes only the minor version that Accelerate was built with (LibTorch_BUILT_VERSION): libtorch's ABI holds within it.
#
# Sets LibTorch_FOUND, LibTorch_VERSION, LibTorch_ROOT, LibTorch_LIBRARY_DIR, LibTorch_HAS_CUDA, LibTorch_SOURCE.
#
# Run as a script (cmake -P) it searches beside the current folder and prints one line: the folder that would be used,
# nothing if there is none, or `error: ` and what is wrong with the torch that was named.

set(LIBTORCH_MINIMUM_VERSION 2.9)
set(LIBTORCH_FIRST_UNSUPPORTED_VERSION 2.12)
set(_libtorch_supported "2.9, 2.10 or 2.11")
if(LibTorch_BUILT_VERSION MATCHES "^([0-9]+)\\.([0-9]+)")
  set(LIBTORCH_MINIMUM_VERSION "${CMAKE_MATCH_0}")
  math(EXPR _libtorch_next_minor "${CMAKE_MATCH_2} + 1")
  set(LIBTORCH_FIRST_UNSUPPORTED_VERSION "${CMAKE_MATCH_1}.${_libtorch_next_minor}")
  set(_libtorch_supported "${LIBTORCH_MINIMUM_VERSION} (Accelerate was built with it)")
endif()

# Sets `out` to the folder that holds include/ and lib/ of the torch at `folder`, or to "".
function(_libtorch_root folder out)
  foreach(candidate IN ITEMS "${folder}" "${folder}/torch" "${folder}/../../..")
    if(EXISTS "${candidate}/lib/libtorch_cpu.so" AND EXISTS "${candidate}/include/ATen/ATen.h")
      get_filename_component(candidate "${candidate}" REALPATH)
      set(${out} "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${out} "" PARENT_SCOPE)
endfunction()

# Sets `out` to MAJOR.MINOR.PATCH as written in the headers of the torch at `root`, or to "".
function(_libtorch_version root out)
  set(${out} "" PARENT_SCOPE)
  foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT EXISTS "${root}/include/${header}")
      continue()
    endif()
    set(parts "")
    foreach(part IN ITEMS MAJOR MINOR PATCH)
      file(STRINGS "${root}/include/${header}" line REGEX "#define TORCH_VERSION_${part} [0-9]+" LIMIT_COUNT 1)
      if(line MATCHES "([0-9]+)$")
        list(APPEND parts "${CMAKE_MATCH_1}")
      endif()
    endforeach()
    list(LENGTH parts found)
    if(found EQUAL 3)
      list(JOIN parts "." version)
      set(${out} "${version}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Whether `version` is one that this project is built and tested with.
function(_libtorch_is_supported version out)
  if(version VERSION_GREATER_EQUAL LIBTORCH_MINIMUM_VERSION AND version VERSION_LESS LIBTORCH_FIRST_UNSUPPORTED_VERSION)
    set(${out} TRUE PARENT_SCOPE)
  else()
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()

# Where python3 would import torch from, asked without importing it; "" if nowhere.
function(_libtorch_of_python out)
  set(${out} "" PARENT_SCOPE)
  set(environment "")
  if(SKBUILD AND Python3_EXECUTABLE)
    # pip builds a wheel with this Python, but hides what is installed in it; the wheel is for the torch there.
    set(LIBTORCH_PYTHON "${Python3_EXECUTABLE}")
    set(environment "${CMAKE_COMMAND}" -E env --unset=PYTHONPATH --unset=PYTHONNOUSERSITE)
  else()
    find_program(LIBTORCH_PYTHON NAMES python3 python)
    mark_as_advanced(LIBTORCH_PYTHON)
  endif()
  if(NOT LIBTORCH_PYTHON)
    return()
  endif()
  execute_process(
    COMMAND ${environment} "${LIBTORCH_PYTHON}" -c
            "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0 AND folder)
    set(${out} "${folder}" PARENT_SCOPE)
  endif()
endfunction()

# Sets LibTorch_ROOT, LibTorch_VERSION and LibTorch_SOURCE, or LibTorch_PROBLEM: one line that says what to do.
function(_libtorch_locate)
  foreach(name IN ITEMS Torch_DIR LIBTORCH)
    set(named "")
    if(DEFINED ${name} AND NOT "${${name}}" STREQUAL "" AND NOT "${${name}}" MATCHES "-NOTFOUND$")
      set(named "${${name}}")
    elseif(DEFINED ENV{${name}} AND NOT "$ENV{${name}}" STREQUAL "")
      set(named "$ENV{${name}}")
    endif()
    if(named STREQUAL "")
      continue()
    endif()
    _libtorch_root("${named}" root)
    if(root STREQUAL "")
      set(LibTorch_NAMED TRUE PARENT_SCOPE)
      set(LibTorch_PROBLEM
          "${name}=${named} holds no libtorch (no lib/libtorch_cpu.so with include/ATen/ATen.h): point it at an unpacked libtorch or an installed Python package torch, version ${_libtorch_supported}."
          PARENT_SCOPE)
      return()
    endif()
    _libtorch_version("${root}" version)
    _libtorch_is_supported("${version}" supported)
    if(NOT supported)
      set(LibTorch_NAMED TRUE PARENT_SCOPE)
      set(LibTorch_PROBLEM
          "${name}=${named} is torch '${version}', supported is ${_libtorch_supported}: point it at such a torch, or leave it out."
          PARENT_SCOPE)
      return()
    endif()
    set(LibTorch_ROOT "${root}" PARENT_SCOPE)
    set(LibTorch_VERSION "${version}" PARENT_SCOPE)
    set(LibTorch_SOURCE "${name}" PARENT_SCOPE)
    return()
  endforeach()

  set(passed_over "")
  set(pairs "")
  foreach(folder IN LISTS LibTorch_TOLD)
    list(APPEND pairs "the installation of Accelerate|${folder}")
  endforeach()
  _libtorch_of_python(python_torch)
  foreach(pair IN LISTS pairs ITEMS "Python|${python_torch}" ".deps|${CMAKE_SOURCE_DIR}/.deps/python/torch")
    string(REGEX MATCH "^([^|]*)\\|(.*)$" _ "${pair}")
    set(source "${CMAKE_MATCH_1}")
    set(folder "${CMAKE_MATCH_2}")
    if(folder STREQUAL "")
      continue()
    endif()
    _libtorch_root("${folder}" root)
    if(root STREQUAL "")
      if(IS_SYMLINK "${folder}")
        file(READ_SYMLINK "${folder}" target)
        string(APPEND passed_over " (${folder} names ${target}, which holds none)")
      endif()
      continue()
    endif()
    _libtorch_version("${root}" version)
    _libtorch_is_supported("${version}" supported)
    if(supported)
      set(LibTorch_ROOT "${root}" PARENT_SCOPE)
      set(LibTorch_VERSION "${version}" PARENT_SCOPE)
      set(LibTorch_SOURCE "${source}" PARENT_SCOPE)
      return()
    endif()
    string(APPEND passed_over " (${folder} is torch '${version}', supported is ${_libtorch_supported})")
  endforeach()
  set(advice "give -DTorch_DIR=/path/to/torch, version ${_libtorch_supported}")
  if(EXISTS "${CMAKE_SOURCE_DIR}/scripts/setup.sh")
    string(PREPEND advice "run 'make deps' to fetch it, or ")
  endif()
  set(LibTorch_PROBLEM "No libtorch found${passed_over}: ${advice}." PARENT_SCOPE)
endfunction()

unset(LibTorch_ROOT)
set(LibTorch_NAMED FALSE)
_libtorch_locate()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  set(_libtorch_answer "${LibTorch_ROOT}")
  if(LibTorch_NAMED)
    set(_libtorch_answer "error: ${LibTorch_PROBLEM}")
  endif()
  execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${_libtorch_answer}")
  return()
endif()

if(NOT LibTorch_ROOT)
  set(LibTorch_FOUND FALSE)
  set(LibTorch_NOT_FOUND_MESSAGE "${LibTorch_PROBLEM}")
  if(LibTorch_FIND_REQUIRED OR LibTorch_NAMED)
    # The leading space keeps CMake from breaking the line.
    message(FATAL_ERROR " ${LibTorch_PROBLEM}")
  endif()
  return()
endif()

set(LibTorch_FOUND TRUE)
set(LibTorch_LIBRARY_DIR "${LibTorch_ROOT}/lib")
set(LibTorch_HAS_CUDA FALSE)
if(EXISTS "${LibTorch_LIBRARY_DIR}/libtorch_cuda.so")
  set(LibTorch_HAS_CUDA TRUE)
endif()

if(NOT LibTorch_FIND_QUIETLY)
  message(STATUS "libtorch ${LibTorch_VERSION} from ${LibTorch_SOURCE}: ${LibTorch_ROOT}")
endif()

find_package(Threads REQUIRED)
if(NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::c10 SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_LIBRARY_DIR}/libc10.so")
  add_library(LibTorch::torch_cpu SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::torch_cpu PROPERTIES IMPORTED_LOCATION "${LibTorch_LIBRARY_DIR}/libtorch_cpu.so")

  # Only the CPU half is linked: the CUDA half is opened at run time where a GPU is present.
  add_library(LibTorch::LibTorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE "${LibTorch_ROOT}/include"
                             "${LibTorch_ROOT}/include/torch/csrc/api/include")
  target_compile_definitions(LibTorch::LibTorch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
  target_compile_features(LibTorch::LibTorch INTERFACE cxx_std_20)
  target_link_libraries(LibTorch::LibTorch INTERFACE LibTorch::torch_cpu LibTorch::c10 Threads::Threads)
endif()
