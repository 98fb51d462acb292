#!/usr/bin/env bash
# Fetches what training on XLA devices needs into .deps/xla, or the folder named as the first argument: torch and torch_xla
# of the same release, and the two libraries that libtorch_cpu.so links to. 2 GB unpacked, 0.9 GB to fetch; nothing else of
# the project uses it. Does nothing where it is there; safe to interrupt and repeat.
set -euo pipefail
readonly named=${1:+$(realpath -m -- "$1")} # from the caller's folder
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly folder=${named:-.deps/xla}
# torch_xla 2.9.0 is the last release, and fits this torch alone.
readonly wanted=(torch==2.9.0 torch_xla==2.9.0 nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-cupti-cu12==12.8.90)

die() {
  printf '[xla] error: %s\n' "$*" >&2
  exit 1
}

[[ -e $folder/torch_xla/version.py && -e $folder/torch/lib/libtorch_cpu.so ]] && exit 0
# It is replaced as a whole.
if [[ -e $folder && ! -e $folder/torch_xla/version.py ]] && { [[ ! -d $folder ]] || [[ -n "$(ls -A -- "$folder")" ]]; }; then
  die "$folder holds other things: name an empty folder, or one that is not there"
fi
[[ "$(uname -m)" == x86_64 ]] || die "there is no wheel of torch_xla for $(uname -m)"
command -v python3 >/dev/null || die "python3 is missing: run 'make deps'"

echo "[xla] fetching torch 2.9.0 and torch_xla 2.9.0 into $folder (2 GB unpacked)" >&2
platforms=()
for minor in {31..17}; do
  platforms+=(--platform "manylinux_2_${minor}_x86_64")
done
rm -rf "$folder.partial" "$folder.tmp"
mkdir -p "$folder.tmp"
# The wheels are only unpacked, never imported; those for Python 3.11 serve on every machine. A folder of that name is
# always complete: it gets its name last.
TMPDIR="$(realpath "$folder.tmp")" PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install \
  --quiet --progress-bar off --no-cache-dir --no-compile --no-deps --target "$folder.partial" --only-binary=:all: \
  --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none "${platforms[@]}" \
  --platform manylinux2014_x86_64 "${wanted[@]}" ||
  die "pip could not fetch them: check the network and the free disk space, then run it again"
rm -rf "$folder" "$folder.tmp"
mv "$folder.partial" "$folder"
