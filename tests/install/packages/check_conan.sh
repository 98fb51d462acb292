#!/usr/bin/env bash
# `conan create` of packaging/conan with the system's libraries and no remote; its test_package builds and runs a
# program of the library.
#
# usage: check_conan.sh folder
#
# Needs pip and the package index (for conan itself) unless conan is installed; skips without.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

mkdir -p "$1"
work="$(cd "$1" && pwd)"
conan="$(command -v conan || true)"
if [[ -z "$conan" ]]; then
  python3 -m venv "$work/environment" 2>/dev/null || skip "python3 -m venv does not work here"
  "$work/environment/bin/python" -m pip install --quiet 'conan>=2' 2>/dev/null ||
    skip "conan cannot be installed from the package index"
  conan="$work/environment/bin/conan"
fi
export CONAN_HOME="$work/home" LIBTORCH
LIBTORCH="$(find_torch)"
rm -rf "$CONAN_HOME"
for version in 19 18 17 16; do # several times as fast as g++ 12
  if command -v "clang++-$version" >/dev/null; then
    export CC="clang-$version" CXX="clang++-$version"
    break
  fi
done
"$conan" profile detect
"$conan" create "$repository/packaging/conan" --no-remote -s compiler.cppstd=20 --version "$(project_version)"

say "Passed"
rm -rf "$CONAN_HOME"
