#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh Python environment beside torch, and builds and runs the README's first
# program with it; then moves the environment, and takes torch away.
#
# usage: check_wheel.sh folder
#
# Needs pip and the package index (for scikit-build-core), skips without. torch is the one of this clone, which lacks
# most of its CUDA packages: pip is told not to fetch them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

mkdir -p "$1"
work="$(cd "$1" && pwd)"
cd "$work" # what the programs write stays there
torch="$(find_torch)"
version="$(project_version)"
torch_minor="$(minor_version_of "$torch")"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
rm -rf "$work/environment" "$work/moved" "$work/wheels"
python3 -m venv "$work/environment" 2>/dev/null || skip "python3 -m venv does not work here"
pip=("$work/environment/bin/python" -m pip)
"${pip[@]}" download --quiet --no-deps -d "$work/wheels" scikit-build-core 2>/dev/null ||
  skip "the package index cannot be reached"

say "The wheel"
rm -rf "$work/wheels"
LIBTORCH="$torch" "${pip[@]}" wheel --quiet --no-deps -w "$work/wheels" "$repository"
wheel="$(echo "$work"/wheels/accelerate_cpp-"$version"-py3-none-*.whl)"
[[ -e "$wheel" ]] || fail "the wheel is $(ls "$work/wheels")"
ls -l "$wheel"
python3 -m zipfile -l "$wheel" | grep -v include/accelerate/

say "Installed beside torch"
packages="$("$work/environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
"${pip[@]}" install --quiet --no-deps "$wheel"
expect 0 "Requires-Dist: torch==2.11.*" cat "$packages/accelerate_cpp-$version.dist-info/METADATA"
missing="libtorch $torch_minor is missing: there is no torch beside $packages/accelerate_cpp"
expect 1 "error: $missing" "$work/environment/bin/accelerate" test --cpu
link_or_copy "$torch" "$packages/torch"
[[ ! -d "$torch/../nvidia" ]] || link_or_copy "$torch/../nvidia" "$packages/nvidia"
require_relative_run_paths "$packages/accelerate_cpp"
never missing "$work/environment/bin/accelerate" env
expect 0 "accelerate $version" "$work/environment/bin/accelerate" --version
expect 0 "$packages/accelerate_cpp" "$work/environment/bin/accelerate" --cmake-prefix
"$work/environment/bin/accelerate" test --cpu --num_processes 2

say "README's program"
copy_consumer "$work/consumer"
configure=(env -u LIBTORCH -u Torch_DIR cmake -G Ninja -S "$work/consumer" "-Dprogram=$work/consumer/train.cpp"
  "-Dversion=$version")
"${configure[@]}" -B "$work/consumer/build" "-DCMAKE_PREFIX_PATH=$("$work/environment/bin/accelerate" --cmake-prefix)" |
  tee "$work/configure.log"
grep -qF "from the installation of Accelerate: $packages/torch" "$work/configure.log" || fail "another torch was found"
cmake --build "$work/consumer/build"
"$work/consumer/build/train"
"$work/environment/bin/accelerate" launch --cpu --num_processes 2 "$work/consumer/build/train"
"$work/consumer/build/texts"

say "The environment in another place"
mv "$work/environment" "$work/moved"
moved="${packages/#"$work/environment"/"$work/moved"}"
expect 0 "$moved/accelerate_cpp" "$work/moved/bin/accelerate" --cmake-prefix
"$work/moved/bin/accelerate" test --cpu --num_processes 2

say "torch is gone"
rm -rf "$moved/torch"
missing="libtorch $torch_minor is missing: there is no torch beside $moved/accelerate_cpp"
expect 0 "$missing" "$work/moved/bin/accelerate" env
expect 1 "error: $missing" "$work/moved/bin/accelerate" test --cpu
# What Python on this machine has must not help.
mkdir -p "$work/no_torch/torch"
touch "$work/no_torch/torch/__init__.py"
PYTHONPATH="$work/no_torch" expect 1 "No libtorch found" "${configure[@]}" -B "$work/consumer/build_without" \
  "-DCMAKE_PREFIX_PATH=$moved/accelerate_cpp"

say "Passed"
rm -rf "$work/moved" "$work/consumer" "$work/no_torch"
