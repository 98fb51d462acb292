#!/usr/bin/env bash
# Brings a Debian 12 or Ubuntu 24.04 machine to the point where CMake can configure this project: the missing Debian
# packages, then libtorch. Does nothing, in under a second, where all is there already; safe to interrupt and repeat.
#
# usage: scripts/setup.sh quickstart|transformers|test|packages|sanitizers|browser|docs|notebook
#   quickstart     what the library, the program and the examples need
#   transformers   also the pretrained model and the texts of examples/transformers
#   test           also what the tests, the benchmarks and the linters need
#   packages       also what making Debian packages, and trying them in a fresh Debian, needs
#   docs           what the documentation site needs, and nothing else: no compiler, no libtorch
#   browser        what `docs` and the tests of pages in a headless Chromium need
#   notebook       also what the C++ kernel for Jupyter needs, and what `transformers` does
#   sanitizers     what `test` needs, and what turns addresses in reports of sanitizers into lines
#
# libtorch is searched as cmake/FindLibTorch.cmake describes (Torch_DIR or LIBTORCH, then Python's torch); if there is
# none, the wheel is unpacked into .deps/python. ACCELERATE_GPU=1 or 0 overrides the look for an NVIDIA driver.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly torch_version=2.11.0
# What libtorch_cpu.so of that wheel links to; the versions are those of cuda-toolkit 13.0.2, which its metadata names.
readonly cpu_companions=("nvidia-cuda-runtime==13.0.96.*" "nvidia-cuda-cupti==13.0.85.*")

say() { printf '[setup] %s\n' "$*"; }
die() {
  printf '[setup] error: %s\n' "$*" >&2
  exit 1
}

# --- Debian packages -------------------------------------------------------------------------------------------------

is_installed() { [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)" == installed ]]; }

# Prints the newest of the clang versions that is installed; with `known`, else that the package lists offer.
clang_version() {
  local version
  for version in 19 18 17 16; do
    if is_installed "clang-$version"; then
      echo "$version"
      return
    fi
  done
  [[ "${1:-}" == known ]] || return 0
  for version in 19 18 17 16; do
    if apt-cache show "clang-$version" >/dev/null 2>&1; then
      echo "$version"
      return
    fi
  done
}

# Prints those packages of the profile `$1` that are not installed, for clang version `$2`.
missing_packages() {
  # The generator of the documentation site; its tests are part of `test`.
  local site=(python3 python3-markdown-it python3-pygments)
  if [[ "$1" == docs ]]; then
    list_missing doxygen "${site[@]}"
    return
  fi
  local packages=(
    ca-certificates ccache cmake dataset-fashion-mnist git libcli11-dev libgloo-dev libpcre2-dev libutf8proc-dev
    libxxhash-dev libyaml-cpp-dev make ninja-build nlohmann-json3-dev pkg-config python3 python3-pip zlib1g-dev
  )
  # clang brings the standard library's headers along.
  if [[ -n "$2" ]]; then
    packages+=("clang-$2" "lld-$2")
  else
    packages+=(g++)
  fi
  # Texts for examples/transformers.
  [[ "$1" == quickstart ]] || packages+=(fortunes)
  [[ "$1" == notebook ]] && packages+=(clang-tools-19 python3-venv)
  [[ "$1" == browser ]] && packages+=(chromium doxygen fonts-dejavu-core "${site[@]}")
  [[ "$1" == packages ]] && packages+=(debootstrap dpkg-dev file lintian)
  [[ "$1" == sanitizers && -n "$2" ]] && packages+=("llvm-$2")
  if [[ "$1" == test || "$1" == packages || "$1" == sanitizers ]]; then
    packages+=("${site[@]}" clang-format-14 g++ git-lfs libgmock-dev libgtest-dev python3-venv)
    # What the launcher is tested with: two kinds of MPI, a SLURM on one machine, a server of ssh, network namespaces.
    packages+=(iproute2 mpich munge openmpi-bin openssh-client openssh-server slurm-client slurmctld slurmd)
    packages+=(fish zsh) # and shells that complete its command line
    packages+=(tmux)     # records the session of the wizard in docs/screens
    [[ -n "$2" ]] && packages+=("clang-tidy-$2" "clang-tools-$2" "libclang-rt-$2-dev")
  fi
  list_missing "${packages[@]}"
}

list_missing() {
  local package
  for package in "$@"; do
    is_installed "$package" || echo "$package"
  done
}

install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "not a Debian or Ubuntu system: the packages named in scripts/setup.sh are taken as installed"
    return
  fi
  local clang missing as_root=()
  clang="$(clang_version)"
  mapfile -t missing < <(missing_packages "$1" "$clang")
  [[ (-n "$clang" || "$1" == docs) && ${#missing[@]} -eq 0 ]] && return

  [[ -n "$clang" || "$1" == docs ]] || missing+=(clang-19)
  if [[ "$(id -u)" -ne 0 ]]; then
    command -v sudo >/dev/null || die "packages are missing: run this as root, or install ${missing[*]}"
    as_root=(sudo)
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
  say "updating the package lists"
  "${apt[@]}" update || die "apt-get update failed: check the network and /etc/apt, then run it again"
  clang="$(clang_version known)"
  mapfile -t missing < <(missing_packages "$1" "$clang")
  [[ ${#missing[@]} -eq 0 ]] && return
  mkdir -p .deps
  : >.deps/apt.log
  # libtorch is fetched while the packages are unpacked; it takes pip and nothing else.
  if [[ "$1" != docs ]] && ! has_any_torch; then
    has_pip || apt_install ca-certificates python3 python3-pip
    start_fetching_torch
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  apt_install "${missing[@]}"
}

apt_install() {
  "${apt[@]}" install -y --no-install-recommends "$@" >>.deps/apt.log 2>&1 ||
    die "apt-get install failed: $(tail -n 3 .deps/apt.log | paste -sd ' ') (all of it is in .deps/apt.log)"
}

check_cmake() {
  command -v cmake >/dev/null || die "cmake is missing: install CMake 3.25 or newer"
  local version
  version="$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')"
  [[ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" == 3.25 ]] ||
    die "$(command -v cmake) is version $version: install CMake 3.25 or newer"
}

# --- libtorch --------------------------------------------------------------------------------------------------------

has_gpu() {
  case "${ACCELERATE_GPU:-}" in
    0) return 1 ;;
    ?*) return 0 ;;
  esac
  [[ -e /proc/driver/nvidia/version || -e /dev/nvidia0 ]]
}

# Prints a python3 that has pip: the one in PATH may be another than Debian's.
python_with_pip() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
  die "no python3 with pip was found: install python3-pip"
}

has_pip() { (python_with_pip) >/dev/null 2>&1; }

# Whether a torch is named, importable or fetched already; whether it can be used is seen later, by CMake.
has_any_torch() {
  [[ -n "${Torch_DIR:-}${LIBTORCH:-}" || -e .deps/python/torch ]] ||
    python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2>/dev/null
}

fetching= # the process that fetches torch, if one does

start_fetching_torch() {
  # A session of its own can be stopped as a whole, pip included.
  export -f say die has_gpu python_with_pip fetch_torch
  export torch_version
  setsid bash -c "$(declare -p cpu_companions); set -euo pipefail; fetch_torch" &
  fetching=$!
  trap 'kill -- "-$fetching" 2>/dev/null || true' EXIT
}

# Unpacks the wheel into .deps/python. The wheel is only unpacked, never imported, so one built for Python 3.11 serves
# on every machine. A folder of that name is always complete: it gets its name last.
fetch_torch() {
  local machine minor python platforms=() wanted
  machine="$(uname -m)"
  case "$machine" in
    x86_64 | aarch64) ;;
    *) die "there is no torch wheel for $machine: build libtorch and set LIBTORCH to its folder" ;;
  esac
  # Told another Python version, pip takes only the platforms that are named; each wheel names one of these.
  for minor in {28..17}; do
    platforms+=(--platform "manylinux_2_${minor}_$machine")
  done
  platforms+=(--platform "manylinux2014_$machine")
  if has_gpu; then
    say "fetching torch $torch_version with CUDA libraries into .deps (4.6 GB unpacked)"
    wanted=("torch==$torch_version")
  else
    say "fetching torch $torch_version for the CPU into .deps (1.3 GB unpacked)"
    wanted=(--no-deps "torch==$torch_version" "${cpu_companions[@]}")
  fi
  python="$(python_with_pip)"
  rm -rf .deps/python.partial .deps/tmp
  mkdir -p .deps/tmp
  # Unpacking in .deps keeps a small /tmp out of the way and makes pip's last step a rename.
  TMPDIR="$PWD/.deps/tmp" PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip install \
    --quiet --progress-bar off --no-cache-dir --no-compile --target .deps/python.partial --only-binary=:all: \
    --python-version 3.11 --implementation cp "${platforms[@]}" "${wanted[@]}" ||
    die "pip could not fetch torch $torch_version: check the network and the free disk space, then run it again"
  rm -rf .deps/python .deps/tmp
  mv .deps/python.partial .deps/python
}

# Stops if a library that libtorch_cpu.so of the torch at `$1` needs cannot be found.
check_loads() {
  local unresolved
  unresolved="$(ldd "$1/lib/libtorch_cpu.so" | sed -n 's/^[[:space:]]*\(.*\) => not found.*/\1/p' | sort -u | paste -sd ' ')"
  [[ -z "$unresolved" ]] ||
    die "libtorch at $1 lacks $unresolved: remove .deps and run 'make deps', or set LIBTORCH to a complete torch"
}

provide_torch() {
  local found
  if [[ -n "$fetching" ]]; then
    wait "$fetching" || exit 1 # it has said why
    trap - EXIT
    say "libtorch is ready: $(du -sh .deps/python | cut -f 1) in .deps/python"
  fi
  found="$(cmake -P cmake/FindLibTorch.cmake)"
  [[ "$found" != error:* ]] || die "${found#error: }"
  if [[ -z "$found" ]] || { [[ "$found" == "$PWD/.deps/"* ]] && has_gpu && [[ ! -d .deps/python/nvidia/nccl ]]; }; then
    fetch_torch
    found="$PWD/.deps/python/torch"
    say "libtorch is ready: $(du -sh .deps/python | cut -f 1) in .deps/python"
  fi
  check_loads "$found"
}

# ---------------------------------------------------------------------------------------------------------------------

case "${1:-}" in
  quickstart | transformers | test | packages | sanitizers | browser | docs | notebook) ;;
  *) die "usage: scripts/setup.sh quickstart|transformers|test|packages|sanitizers|browser|docs|notebook" ;;
esac
install_packages "$1"
[[ "$1" != docs ]] || exit 0
check_cmake
provide_torch
if [[ "$1" == transformers || "$1" == notebook ]]; then
  scripts/fetch_minilm.sh
elif [[ "$1" == test ]]; then
  # The tests that need it fetch it too, and are skipped where that is not possible.
  scripts/fetch_minilm.sh || say "going on without the pretrained model"
fi
