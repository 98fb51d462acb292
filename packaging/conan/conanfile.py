"""Accelerate for C++ as a Conan 2 package, from this clone and with the libraries of the system.

    LIBTORCH=/path/to/torch conan create packaging/conan --no-remote -s compiler.cppstd=20 --version 0.1.0

libtorch is not a Conan package: it is named by LIBTORCH or the configuration user.accelerate:libtorch, else found as
cmake/FindLibTorch.cmake describes. The package keeps a link to it, so it is for this machine.
"""

import os
import shutil

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.tools.system.package_manager import Apt


class Accelerate(ConanFile):
    name = "accelerate-cpp"
    description = "Train libtorch models on any number of devices"
    license = "Apache-2.0"
    topics = ("libtorch", "training", "distributed")
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    def export_sources(self):
        clone = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("CMakeLists.txt", "LICENSE", "CHANGELOG.md", "cmake/*", "include/*", "src/*", "packaging/debian/*"):
            copy(self, pattern, clone, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("Accelerate for C++ runs on Linux")
        if self.settings.compiler not in ("gcc", "clang"):
            raise ConanInvalidConfiguration("Accelerate for C++ is built by g++ or clang")
        check_min_cppstd(self, 20)

    def system_requirements(self):
        Apt(self).install(
            ["libcli11-dev", "libgloo-dev", "libpcre2-dev", "libutf8proc-dev", "libxxhash-dev", "libyaml-cpp-dev",
             "nlohmann-json3-dev", "pkg-config", "zlib1g-dev"],
            check=True,
        )

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables[f"ACCELERATE_BUILD_{part}"] = False
        # The profile's compiler: left alone, CMakeLists.txt prefers clang.
        compiler = {"gcc": "g++", "clang": "clang++"}[str(self.settings.compiler)]
        versioned = shutil.which(f"{compiler}-{self.settings.compiler.version}")
        if not self.conf.get("tools.build:compiler_executables"):
            toolchain.cache_variables["CMAKE_CXX_COMPILER"] = versioned or compiler
        libtorch = self.conf.get("user.accelerate:libtorch", default=os.environ.get("LIBTORCH", ""))
        if libtorch:
            toolchain.cache_variables["LIBTORCH"] = libtorch
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target="installable")

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        # Consumers take the CMake package that is installed, which finds libtorch too.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs.append(os.path.join("lib", "cmake", "Accelerate"))
        self.cpp_info.libs = ["accelerate", "accelerate_transformers"]
