# Installs the build into a fresh prefix, moves the prefix, then builds and runs the README's first program against it
# from a folder of its own, alone and under the installed `accelerate launch`, and a program of Accelerate::transformers.
#
# Given: BUILD (the build folder), SNIPPETS (the folder of the README's programs), and CXX, BUILD_TYPE, VERSION of BUILD.

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
