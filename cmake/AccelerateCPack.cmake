# Debian packages: `cpack` in the build folder writes accelerate, libaccelerate0 and libaccelerate-dev. Configure with
# -DCMAKE_INSTALL_PREFIX=/usr to have the library in Debian's folder of its architecture (scripts/build_deb.sh does).
#
# libtorch is not a Debian package at the versions that we support, so no package depends on it. libaccelerate0 has a link
# to /etc/accelerate/libtorch, itself a link that its postinst makes if it can and the administrator sets otherwise.

find_program(DPKG_PROGRAM dpkg)
find_program(GZIP_PROGRAM gzip)
mark_as_advanced(DPKG_PROGRAM GZIP_PROGRAM)
if(SKBUILD OR NOT DPKG_PROGRAM OR NOT GZIP_PROGRAM OR NOT TARGET accelerate_cli)
  return()
endif()

set(debian_source "${PROJECT_SOURCE_DIR}/packaging/debian")
set(debian_dir "${PROJECT_BINARY_DIR}/debian")
set(debian_version "${PROJECT_VERSION}-1")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_minor "${LibTorch_VERSION}")
set(debian_library_package libaccelerate0)
set(debian_maintainer "The Accelerate for C++ authors <nobody@accelerate.invalid>")

# --- Files that only these packages have -----------------------------------------------------------------------------

# Code of these is compiled or linked into the library or the program: their notices belong to the copies of the package.
set(embedded_notices "")
foreach(package IN ITEMS libcli11-dev nlohmann-json3-dev libxxhash-dev libyaml-cpp-dev)
  if(EXISTS "/usr/share/doc/${package}/copyright")
    file(READ "/usr/share/doc/${package}/copyright" notice)
  else()
    message(STATUS "The licence notice of ${package} is not installed: packages made here lack it")
    set(notice "not found when this package was made\n")
  endif()
  string(APPEND embedded_notices "\n---- ${package} ----\n\n${notice}")
endforeach()
string(TIMESTAMP debian_date "%a, %d %b %Y %H:%M:%S +0000" UTC) # that of SOURCE_DATE_EPOCH where it is set
configure_file("${debian_source}/copyright.in" "${debian_dir}/copyright" @ONLY)
configure_file("${debian_source}/changelog.in" "${debian_dir}/changelog" @ONLY)
foreach(script IN ITEMS postinst postrm)
  configure_file("${debian_source}/${script}.in" "${debian_dir}/${script}" @ONLY)
  file(CHMOD "${debian_dir}/${script}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                   WORLD_READ WORLD_EXECUTE)
endforeach()
configure_file("${debian_source}/triggers" "${debian_dir}/triggers" COPYONLY)
file(WRITE "${debian_dir}/accelerate-selftest.1" ".so man1/accelerate.1\n")

set(compressed "")
# Compresses `source` to `out` as Debian wants it: the best it can, without a time inside.
function(accelerate_compress source out)
  add_custom_command(
    OUTPUT "${out}"
    COMMAND "${GZIP_PROGRAM}" -9nc "${source}" > "${out}"
    DEPENDS "${source}" ${ARGN}
    VERBATIM)
  set(compressed ${compressed} "${out}" PARENT_SCOPE)
endfunction()
accelerate_compress("${debian_dir}/changelog" "${debian_dir}/changelog.Debian.gz")
accelerate_compress("${PROJECT_SOURCE_DIR}/CHANGELOG.md" "${debian_dir}/changelog.gz")
accelerate_compress("${generated}/accelerate.1" "${debian_dir}/accelerate.1.gz" accelerate_cli_docs)
accelerate_compress("${debian_dir}/accelerate-selftest.1" "${debian_dir}/accelerate-selftest.1.gz")
add_custom_target(accelerate_debian_files ALL DEPENDS ${compressed})
list(APPEND installable accelerate_debian_files)

# Installed by cpack alone, as components of the same groups.
foreach(pair IN ITEMS "program|accelerate" "library|${debian_library_package}" "development|libaccelerate-dev")
  string(REGEX MATCH "^([^|]*)\\|(.*)$" _ "${pair}")
  set(component "${CMAKE_MATCH_1}_debian")
  set(package "${CMAKE_MATCH_2}")
  install(FILES "${debian_dir}/copyright" "${debian_dir}/changelog.Debian.gz" "${debian_dir}/changelog.gz"
          DESTINATION "share/doc/${package}" COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES "${debian_source}/${CMAKE_MATCH_1}.lintian-overrides" DESTINATION share/lintian/overrides COMPONENT ${component}
          EXCLUDE_FROM_ALL RENAME ${package})
endforeach()
install(FILES "${debian_dir}/accelerate.1.gz" "${debian_dir}/accelerate-selftest.1.gz" DESTINATION share/man/man1
        COMPONENT program_debian EXCLUDE_FROM_ALL)
file(CREATE_LINK /etc/accelerate/libtorch "${debian_dir}/libtorch" SYMBOLIC)
install(FILES "${debian_dir}/libtorch" DESTINATION "${library_dir}/accelerate" COMPONENT library_debian EXCLUDE_FROM_ALL)

# --- The packages ----------------------------------------------------------------------------------------------------

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME accelerate)
set(CPACK_PACKAGE_VENDOR "The Accelerate for C++ authors")
set(CPACK_PACKAGE_CONTACT "${debian_maintainer}")
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program program_debian library library_debian development development_debian)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${debian_maintainer}")
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# What comes from Debian is found by dpkg-shlibdeps; it looks at libtorch and our own library too, and leaves them out.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}" "${LibTorch_LIBRARY_DIR}")

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME accelerate)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "${debian_library_package} (= ${debian_version})")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "clang-tools-19, libaccelerate-dev, openssh-client, python3, python3-ipykernel")
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION
    "train libtorch models on any number of devices
The program accelerate writes a configuration, starts the workers of a
training program on one machine or many, supervises them and says what went
wrong. It also tries out whether machines can train together, estimates the
memory that a model needs and works on checkpoints.
.
It starts any program. Those in C++ use libaccelerate-dev.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${debian_library_package})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=") # no stable ABI before 1.0
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "python3")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${debian_dir}/postinst;${debian_dir}/postrm;${debian_dir}/triggers")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION
    "train libtorch models on any number of devices (library)
One training loop for one process, many processes and many machines:
distributed data parallelism, mixed precision, sharded data loading, exact
resume from checkpoints, and pretrained transformers.
.
It needs libtorch ${torch_minor}, which is not a Debian package: the wheel torch of
the Python Package Index (pip install 'torch==${torch_minor}.*'), or the archive
libtorch that PyTorch publishes. /etc/accelerate/libtorch is a link to its
folder, made on installation if the system's Python has that torch;
otherwise run: ln -sfn /path/to/torch /etc/accelerate/libtorch")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libaccelerate-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${debian_library_package} (= ${debian_version})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "cmake (>= 3.25), g++ (>= 4:12)")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
    "train libtorch models on any number of devices (development files)
Headers and the CMake package of the library: find_package(Accelerate) gives
the targets Accelerate::accelerate and Accelerate::transformers.
.
The headers need those of libtorch ${torch_minor}, which is not a Debian package. The
torch that /etc/accelerate/libtorch names is used, or another that is given
as -DTorch_DIR=/path/to/torch or in the variable LIBTORCH.")

include(CPack)
foreach(group IN ITEMS program library development)
  cpack_add_component_group(${group})
  cpack_add_component(${group} GROUP ${group})
  cpack_add_component(${group}_debian GROUP ${group})
endforeach()
