# Not tried: see the README beside this folder. Builds the clone that this port lies in.
vcpkg_check_linkage(ONLY_DYNAMIC_LIBRARY)
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT DEFINED ENV{LIBTORCH})
  message(FATAL_ERROR "Set LIBTORCH to the folder of torch 2.9, 2.10 or 2.11, and VCPKG_KEEP_ENV_VARS=LIBTORCH.")
endif()
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS "-DLIBTORCH=$ENV{LIBTORCH}" -DACCELERATE_BUILD_TESTS=OFF -DACCELERATE_BUILD_EXAMPLES=OFF
          -DACCELERATE_BUILD_BENCH=OFF)
vcpkg_cmake_build(TARGET installable)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME Accelerate CONFIG_PATH lib/cmake/Accelerate)
vcpkg_copy_tools(TOOL_NAMES accelerate accelerate-selftest AUTO_CLEAN)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
