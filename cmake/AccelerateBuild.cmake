# How every target of this project is compiled and where it lands.

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the sloppiness ccache never hits in files that use a precompiled header. What the compiler itself says of
  # dependencies spares ccache a run of the preprocessor for every file that it does not know.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} "${CCACHE_PROGRAM}")
endif()

# A library exports what is declared with ACCELERATE_EXPORT (include/accelerate/export.h). Everything is compiled so, also
# programs and tests: a precompiled header serves one kind of visibility.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# One flavour of position-independent code everywhere, so that libraries and programs can share a precompiled header.
add_compile_options(-fPIC -Wall -Wextra)
if(ACCELERATE_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  string(REGEX MATCH "^[0-9]+" clang_major "${CMAKE_CXX_COMPILER_VERSION}")
  find_program(LLD_PROGRAM NAMES ld.lld-${clang_major} ld.lld)
  mark_as_advanced(LLD_PROGRAM)
  if(LLD_PROGRAM)
    add_link_options("--ld-path=${LLD_PROGRAM}")
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Where it inlines std::string and std::optional, g++ 12 sees overlaps, overflows and unset values that are not there:
  # gcc.gnu.org/PR105651 and PR105562 among others, mended in 13. Real overflows are what AddressSanitizer finds.
  add_compile_options(-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-maybe-uninitialized)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # In a batch of sources g++ takes every source for a header, in which a class must not hold a type without a name outside.
  add_compile_options(-Wno-subobject-linkage)
endif()
if(ACCELERATE_SANITIZE)
  add_compile_options(-fsanitize=${ACCELERATE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ACCELERATE_SANITIZE})
  # An object for the linker and no target: what is exported would need it too.
  set(sanitizer_defaults "${PROJECT_BINARY_DIR}/sanitizer_defaults.o")
  set(sanitizer_defaults_source "${PROJECT_SOURCE_DIR}/tests/support/sanitizer_defaults.cpp")
  set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${sanitizer_defaults_source}")
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -c "${sanitizer_defaults_source}" -o "${sanitizer_defaults}"
                  COMMAND_ERROR_IS_FATAL ANY)
  string(APPEND CMAKE_EXE_LINKER_FLAGS " ${sanitizer_defaults}")
endif()

if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT ACCELERATE_SANITIZE)
  # What a library forgets to link shows when it is linked, not in the first program that calls it. Sanitizers leave
  # their own symbols to the program; the plug-in for CUDA, a module, finds its libraries in the process.
  add_link_options("$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>:LINKER:--no-undefined>")
endif()

# What nobody uses of a batch of sources stays out.
add_link_options("$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>:LINKER:--gc-sections>")

# Compiles `target` with less optimisation than a release has: for code that waits, asks and prints, and is compiled by
# everyone who tries the project.
function(accelerate_compile_quickly target)
  target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:-O1>")
endfunction()

# --- Unity builds and precompiled headers ----------------------------------------------------------------------------

# libtorch's headers cost more than the code that includes them, so sources are compiled in batches. A batch never
# crosses a target, and a target never crosses a room, so names in anonymous namespaces are unique within a room.
# ACCELERATE_UNITY=OFF (the preset `single`) compiles each file alone: for work on one file, for clangd and clang-tidy.
option(ACCELERATE_UNITY "Compile sources in batches" ON)
set(ACCELERATE_BATCH_FACTOR 1 CACHE STRING "How many times larger batches are than suits work on single files")

# Lets the sources of `target` be compiled in batches of at most `size` files: few enough that a touched file is compiled
# again within seconds. Builds in which nobody works, such as those of the long groups, take larger ones.
function(accelerate_unity target size)
  if(ACCELERATE_UNITY)
    math(EXPR size "${size} * ${ACCELERATE_BATCH_FACTOR}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
  endif()
endfunction()

# Lets `target` compile with the precompiled header of libtorch (made in src/CMakeLists.txt).
function(accelerate_use_torch_pch target)
  target_link_libraries(${target} PRIVATE accelerate_torch_usage)
  target_precompile_headers(${target} REUSE_FROM accelerate_torch_pch)
endfunction()
