# Installation, and the CMake package that lets another project say find_package(Accelerate).

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Accelerate")
set(installable accelerate accelerate_transformers)
install(TARGETS accelerate accelerate_transformers EXPORT AccelerateTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")

# The CUDA half is opened at run time from the library's own folder; nobody links it, so it is not exported.
if(TARGET accelerate_cuda)
  list(APPEND installable accelerate_cuda)
  install(TARGETS accelerate_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(TARGET accelerate_cli)
  list(APPEND installable accelerate_cli)
  install(TARGETS accelerate_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  list(APPEND installable accelerate_cli_docs)
  set(generated "${PROJECT_BINARY_DIR}/generated")
  install(FILES "${generated}/accelerate.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  install(FILES "${generated}/accelerate.bash" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
          RENAME accelerate)
  install(FILES "${generated}/_accelerate" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
  install(FILES "${generated}/accelerate.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()
if(TARGET accelerate_selftest)
  list(APPEND installable accelerate_selftest)
  install(TARGETS accelerate_selftest RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
add_custom_target(installable DEPENDS ${installable})

# Named here because CMake leaves folders inside the source tree, as .deps is, out of the link path that it installs.
foreach(target IN LISTS installable)
  if(NOT target MATCHES "^accelerate_cli")
    set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH "${LibTorch_LIBRARY_DIR}")
  endif()
endforeach()

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/accelerate" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

install(EXPORT AccelerateTargets NAMESPACE Accelerate:: DESTINATION "${package_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/AccelerateConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/package/AccelerateConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/AccelerateConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/AccelerateConfig.cmake"
              "${PROJECT_BINARY_DIR}/package/AccelerateConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" DESTINATION "${package_dir}")
