# Installs the build into a fresh prefix, moves the prefix, then builds and runs the README's first program against it
# from a folder of its own, alone and under the installed `accelerate launch`, programs with strategies of their own on one
# to three processes, and a program of Accelerate::transformers.
# Then takes away the torch that the installation was told of, and names another.
#
# Given: BUILD (the build folder), SNIPPETS (the folder of the README's programs), and CXX, BUILD_TYPE, VERSION and
# LIBTORCH_VERSION of BUILD.

set(CMAKE_EXECUTE_PROCESS_COMMAND_ECHO STDOUT)
set(work "${BUILD}/install_test")
set(prefix "${work}/moved prefix")

file(GLOB programs "${SNIPPETS}/programs/readme_*.cpp")
list(SORT programs)
list(POP_FRONT programs program)
if(program STREQUAL "")
  message(FATAL_ERROR "README.md holds no whole program (a cpp block with `int main`)")
endif()

function(step)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${work}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${work}")
file(MAKE_DIRECTORY "${work}")
step("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/prefix")
file(RENAME "${work}/prefix" "${prefix}")

step("${CMAKE_COMMAND}" -G Ninja -S "${CMAKE_CURRENT_LIST_DIR}/consumer" -B "${work}/consumer"
     "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}"
     "-Dprogram=${program}" "-Dversion=${VERSION}")
file(STRINGS "${work}/consumer/CMakeCache.txt" found REGEX "^Accelerate_DIR:")
string(FIND "${found}" "${prefix}" inside)
if(inside EQUAL -1)
  message(FATAL_ERROR "the consumer found another package than the one under test: ${found}")
endif()
step("${CMAKE_COMMAND}" --build "${work}/consumer")
step("${work}/consumer/train")
step("${prefix}/bin/accelerate" launch --cpu --num_processes 2 "${work}/consumer/train")
foreach(processes IN ITEMS 1 2 3)
  step("${prefix}/bin/accelerate" launch --cpu --num_processes ${processes} "${work}/consumer/averaging")
endforeach()
foreach(strategy IN ITEMS sharded_optimizer sharded_parameters)
  step("${prefix}/bin/accelerate" launch --cpu --num_processes 2 "${work}/consumer/${strategy}" save "${work}/${strategy}")
  foreach(processes IN ITEMS 1 2 3)
    step("${prefix}/bin/accelerate" launch --cpu --num_processes ${processes} "${work}/consumer/${strategy}" resume
         "${work}/${strategy}")
  endforeach()
endforeach()
# The pieces of the model are put together by the program alone.
step("${prefix}/bin/accelerate" merge-weights "${work}/sharded_parameters/state" "${work}/merged")
step("${work}/consumer/texts")

# A torch of the wrong place is refused with one line that names it.
execute_process(
  COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${CMAKE_CURRENT_LIST_DIR}/consumer" -B "${work}/wrong_torch"
          "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX}" "-Dprogram=${program}" "-Dversion=${VERSION}"
          "-DTorch_DIR=${work}/nowhere"
  ERROR_VARIABLE refusal OUTPUT_QUIET RESULT_VARIABLE status)
string(FIND "${refusal}" "Torch_DIR=${work}/nowhere holds no libtorch" named)
if(status EQUAL 0 OR named EQUAL -1)
  message(FATAL_ERROR "a wrong Torch_DIR was not refused clearly: ${refusal}")
endif()

# --- find_package(Torch) beside ours ---------------------------------------------------------------------------------

# A package named Torch in `folder` whose target stands for the libtorch in `libraries`; torch's own wants a CUDA toolkit.
function(write_torch_package folder libraries)
  file(WRITE "${folder}/TorchConfig.cmake" "add_library(torch SHARED IMPORTED)
set_target_properties(torch PROPERTIES IMPORTED_LOCATION \"${libraries}/libtorch.so\")
")
endfunction()
function(configure_beside_torch packages torch status text)
  string(MAKE_C_IDENTIFIER "${packages} ${torch}" name)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${CMAKE_CURRENT_LIST_DIR}/beside_torch" -B "${work}/${name}"
            "-DCMAKE_PREFIX_PATH=${prefix};${torch}" "-DCMAKE_CXX_COMPILER=${CXX}" "-Dpackages=${packages}"
    OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE ended)
  string(FIND "${said}" "${text}" found)
  if(NOT ended EQUAL status OR found EQUAL -1)
    message(FATAL_ERROR "${packages}: ended with status ${ended}, not with ${status} and: ${text}\n${said}")
  endif()
endfunction()
file(GLOB told LIST_DIRECTORIES true "${prefix}/lib*/accelerate/libtorch" "${prefix}/lib/*/accelerate/libtorch")
list(GET told 0 told)
file(REAL_PATH "${told}" same_torch)
write_torch_package("${work}/same/share/cmake/Torch" "${same_torch}/lib")
write_torch_package("${work}/other/share/cmake/Torch" "${work}/other/lib")
configure_beside_torch("Accelerate;Torch" "${work}/same" 0 "Generating done")
configure_beside_torch("Accelerate;Torch" "${work}/other" 1
                       "find_package(Torch) found ${work}/other/lib, but Accelerate uses")
# What find_package(Torch) found before counts as named, and this one holds no libtorch.
configure_beside_torch("Torch;Accelerate" "${work}/other" 1 "holds no libtorch")

# --- libtorch is found by the link that the installation has, and by nothing else -------------------------------------

# The command ends with `status` and says `text`; what Python has on this machine does not help it.
function(expect status text)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env --unset=LD_LIBRARY_PATH --unset=LIBTORCH --unset=Torch_DIR
            "PYTHONPATH=${work}/no_torch" ${ARGN}
    WORKING_DIRECTORY "${work}" OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE ended)
  message("${said}")
  string(FIND "${said}" "${text}" found)
  if(NOT ended EQUAL status OR found EQUAL -1)
    message(FATAL_ERROR "ended with status ${ended}, not with ${status} and: ${text}")
  endif()
endfunction()
file(WRITE "${work}/no_torch/torch/__init__.py" "")

expect(0 "${prefix}\n" "${prefix}/bin/accelerate" --cmake-prefix)

file(GLOB links LIST_DIRECTORIES true "${prefix}/lib*/accelerate/libtorch" "${prefix}/lib/*/accelerate/libtorch")
list(LENGTH links count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "not one link to libtorch in ${prefix}: ${links}")
endif()
set(link "${links}")
get_filename_component(libraries "${link}/../.." ABSOLUTE)
file(READ_SYMLINK "${link}" torch)

file(GLOB installed_objects "${libraries}/libaccelerate*.so" "${prefix}/bin/accelerate*")
foreach(object IN LISTS installed_objects)
  file(READ_ELF "${object}" RUNPATH run_paths RPATH old_run_paths)
  foreach(path IN LISTS run_paths old_run_paths)
    if(NOT path MATCHES "^\\$ORIGIN")
      message(FATAL_ERROR "${object} looks for libraries in ${path}")
    endif()
  endforeach()
endforeach()

file(REMOVE "${link}")
file(CREATE_LINK "${work}/gone/torch" "${link}" SYMBOLIC)
string(REGEX MATCH "[0-9]+\\.[0-9]+" minor "${LIBTORCH_VERSION}")
set(missing "libtorch ${minor} is missing: ${link} names ${work}/gone/torch, which holds none")
expect(0 "${missing}" "${prefix}/bin/accelerate" env)
expect(1 "error: ${missing}\n" "${prefix}/bin/accelerate" test --cpu)
expect(127 "libtorch_cpu.so: cannot open shared object file" "${prefix}/bin/accelerate-selftest" --help)
expect(1 "No libtorch found (${link} names ${work}/gone/torch, which holds none): give -DTorch_DIR=/path/to/torch, version ${minor} (Accelerate was built with it).\n"
       "${CMAKE_COMMAND}" -G Ninja -S "${CMAKE_CURRENT_LIST_DIR}/consumer" -B "${work}/no_torch_consumer"
       "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX}" "-Dprogram=${program}" "-Dversion=${VERSION}")

file(REMOVE "${link}")
file(CREATE_LINK "${torch}" "${work}/another torch" SYMBOLIC)
file(CREATE_LINK "${work}/another torch" "${link}" SYMBOLIC)
expect(0 "accelerate-selftest" "${prefix}/bin/accelerate-selftest" --help)
expect(0 " at ${torch}/lib\n" "${prefix}/bin/accelerate" env)
