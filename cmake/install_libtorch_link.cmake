# A step of the installation into a prefix: makes `link`, by which the installed library finds libtorch, and says where
# it leads. Given: libtorch (the folder), version (of it), clone (the source tree), link.

get_filename_component(folder "${link}" DIRECTORY)
file(MAKE_DIRECTORY "${folder}")
file(REMOVE "${link}")
file(CREATE_LINK "${libtorch}" "${link}" SYMBOLIC)
message(STATUS "libtorch ${version}: ${link} -> ${libtorch}")

string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
get_filename_component(real_deps "${clone}/.deps" REALPATH)
string(FIND "${libtorch}/" "${real_deps}/" inside)
if(inside EQUAL 0)
  message(STATUS "  That torch is inside the clone. Before you remove the clone, point the link at another torch ${minor}: ln -sfn /path/to/torch ${link}")
endif()
