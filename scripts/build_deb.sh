#!/usr/bin/env bash
# Builds the Debian packages accelerate, libaccelerate0 and libaccelerate-dev and prints their paths.
#
# usage: scripts/build_deb.sh [build folder]    (build-deb unless given; packages/ in it holds the result)
#
# libtorch is searched as cmake/FindLibTorch.cmake describes: LIBTORCH=/path/to/torch names another.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build="${1:-build-deb}"
for program in cmake ninja dpkg-shlibdeps file; do
  command -v "$program" >/dev/null || {
    echo "[deb] error: $program is missing: install cmake, ninja-build, dpkg-dev and file" >&2
    exit 1
  }
done
# With prefix /usr the library goes to Debian's folder for this architecture.
cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr \
  -DACCELERATE_BUILD_TESTS=OFF -DACCELERATE_BUILD_EXAMPLES=OFF -DACCELERATE_BUILD_BENCH=OFF
cmake --build "$build" --target installable
rm -f "$build"/packages/*.deb
cpack --config "$build/CPackConfig.cmake"
ls -1 "$build"/packages/*.deb
