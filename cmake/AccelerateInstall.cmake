# Installation, and the CMake package that lets another project say find_package(Accelerate).
#
# Components: program, library, development; and what belongs to one kind of installation alone: manual, documents and
# libtorch_link to a prefix (`cmake --install`, `make install`), those of AccelerateCPack.cmake to Debian packages.
#
# No installed file holds an absolute path of libtorch. Libraries and programs look for it in lib/accelerate/libtorch/lib,
# where `libtorch` is a link to the torch that the installation was told of; it can be pointed at another at any time.
# In a wheel it is the package torch beside ours, which is why a build by scikit-build-core (SKBUILD) differs here.

include(CMakePackageConfigHelpers)

file(RELATIVE_PATH library_dir "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_LIBDIR}")
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Accelerate")
set(program_dir "${CMAKE_INSTALL_BINDIR}")
set(selftest_dir "${CMAKE_INSTALL_BINDIR}")
set(data_dir "${CMAKE_INSTALL_DATADIR}")
set(man_dir "${CMAKE_INSTALL_MANDIR}")
set(torch_from_libraries "accelerate/libtorch/lib")
set(libtorch_candidates "\${PACKAGE_PREFIX_DIR}/${library_dir}/accelerate/libtorch")
if(SKBUILD)
  set(program_dir "${SKBUILD_SCRIPTS_DIR}")
  set(selftest_dir "${CMAKE_INSTALL_LIBEXECDIR}/accelerate") # scripts do not know where the library is
  set(data_dir "${SKBUILD_DATA_DIR}/share")
  set(man_dir "${SKBUILD_DATA_DIR}/share/man")
  list(APPEND torch_from_libraries "../../torch/lib")
  string(APPEND libtorch_candidates ";\${PACKAGE_PREFIX_DIR}/../torch")
  if(NOT LibTorch_VERSION MATCHES "^2\\.11\\.")
    message(FATAL_ERROR " The wheel requires torch 2.11 (pyproject.toml), but ${LibTorch_ROOT} is torch ${LibTorch_VERSION}: set LIBTORCH to the folder of torch 2.11.")
  endif()
endif()

# Sets where the installed `target`, in the folder `from`, finds our libraries and libtorch.
function(accelerate_set_install_rpath target from)
  file(RELATIVE_PATH to_libraries "/prefix/${from}" "/prefix/${library_dir}")
  string(REGEX REPLACE "/$" "" origin "\$ORIGIN/${to_libraries}")
  set(rpath "${origin}")
  foreach(folder IN LISTS torch_from_libraries)
    list(APPEND rpath "${origin}/${folder}")
  endforeach()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}")
endfunction()

# --- Library ---------------------------------------------------------------------------------------------------------

set(installed_libraries accelerate accelerate_transformers)
set(installable ${installed_libraries})
install(
  TARGETS ${installed_libraries} EXPORT AccelerateTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library NAMELINK_COMPONENT development)

# The CUDA half is opened at run time from the library's own folder; nobody links it, so it is not exported.
if(TARGET accelerate_cuda)
  list(APPEND installed_libraries accelerate_cuda)
  list(APPEND installable accelerate_cuda)
  install(TARGETS accelerate_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library)
endif()
# What is opened with torch_xla, in a folder of its own beside the library: the names are those of others.
foreach(stand_in IN ITEMS torch torch_python python)
  if(TARGET accelerate_xla_${stand_in})
    install(TARGETS accelerate_xla_${stand_in} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/accelerate_xla" COMPONENT library)
  endif()
endforeach()
foreach(target IN LISTS installed_libraries)
  accelerate_set_install_rpath(${target} "${library_dir}")
  if(SKBUILD) # a wheel has no links: each of the three names of a library would be a copy
    set_property(TARGET ${target} PROPERTY VERSION)
    set_property(TARGET ${target} PROPERTY SOVERSION)
  endif()
endforeach()

# The build has such a link too: there the program finds everything as it does when installed.
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/lib/accelerate")
file(CREATE_LINK "${LibTorch_ROOT}" "${PROJECT_BINARY_DIR}/lib/accelerate/libtorch" SYMBOLIC)
if(NOT SKBUILD)
  install(CODE "set(libtorch \"${LibTorch_ROOT}\")
set(version \"${LibTorch_VERSION}\")
set(clone \"${PROJECT_SOURCE_DIR}\")
set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${library_dir}/accelerate/libtorch\")
include(\"${PROJECT_SOURCE_DIR}/cmake/install_libtorch_link.cmake\")" COMPONENT libtorch_link)
endif()

# --- Program ---------------------------------------------------------------------------------------------------------

set(generated "${PROJECT_BINARY_DIR}/generated")
if(TARGET accelerate_cli)
  list(APPEND installable accelerate_cli accelerate_cli_docs)
  set_target_properties(accelerate_cli PROPERTIES INSTALL_RPATH "")
  install(TARGETS accelerate_cli RUNTIME DESTINATION "${program_dir}" COMPONENT program)
  install(FILES "${generated}/accelerate.1" DESTINATION "${man_dir}/man1" COMPONENT manual)
  install(FILES "${generated}/accelerate.bash" DESTINATION "${data_dir}/bash-completion/completions" COMPONENT program
          RENAME accelerate)
  install(FILES "${generated}/_accelerate" DESTINATION "${data_dir}/zsh/site-functions" COMPONENT program)
  install(FILES "${generated}/accelerate.fish" DESTINATION "${data_dir}/fish/vendor_completions.d" COMPONENT program)
endif()
if(TARGET accelerate_selftest)
  list(APPEND installable accelerate_selftest)
  accelerate_set_install_rpath(accelerate_selftest "${selftest_dir}")
  install(TARGETS accelerate_selftest RUNTIME DESTINATION "${selftest_dir}" COMPONENT program)
endif()

# The kernel for Jupyter: `accelerate kernel install` names this place.
set(jupyter_dir "${CMAKE_INSTALL_LIBDIR}/accelerate/jupyter")
list(APPEND installable accelerate_repl_guard)
install(TARGETS accelerate_repl_guard LIBRARY DESTINATION "${jupyter_dir}" COMPONENT program)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/jupyter/accelerate_kernel" DESTINATION "${jupyter_dir}" COMPONENT program
        FILES_MATCHING PATTERN "*.py")

# --- Development files -----------------------------------------------------------------------------------------------

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/accelerate" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        COMPONENT development FILES_MATCHING PATTERN "*.h")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT documents)

install(EXPORT AccelerateTargets NAMESPACE Accelerate:: DESTINATION "${package_dir}" COMPONENT development)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/AccelerateConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/package/AccelerateConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/AccelerateConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/AccelerateConfig.cmake"
              "${PROJECT_BINARY_DIR}/package/AccelerateConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" DESTINATION "${package_dir}" COMPONENT development)

include(AccelerateCPack)
add_custom_target(installable DEPENDS ${installable})
