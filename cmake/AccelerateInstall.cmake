# Installation and the CMake package.
