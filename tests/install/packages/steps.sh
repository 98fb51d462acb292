# What the tests of packages have in common; sourced by them, with bash.

repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)"

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}
# CTest shows a test that ends so as skipped.
skip() {
  printf 'SKIPPED: %s\n' "$*"
  exit 77
}

# expect STATUS TEXT COMMAND...: the command ends with STATUS, and one line of what it prints holds TEXT.
expect() {
  local status="$1" text="$2" output got=0
  shift 2
  printf '$ %s\n' "$*"
  output="$("$@" 2>&1)" || got=$?
  printf '%s\n' "$output"
  [[ "$got" -eq "$status" ]] || fail "exit status $got, not $status"
  grep -qF -- "$text" <<<"$output" || fail "no line says: $text"
}

# never TEXT COMMAND...: the command succeeds and prints TEXT nowhere.
never() {
  local text="$1" output
  shift
  printf '$ %s\n' "$*"
  output="$("$@" 2>&1)" || fail "exit status $?: $output"
  printf '%s\n' "$output"
  if grep -qF -- "$text" <<<"$output"; then fail "a line says: $text"; fi
}

# The folder `$1` as `$2`, which does not exist: by hard links, or copied where they cannot be, as between file systems.
link_or_copy() {
  cp -al "$1" "$2" 2>/dev/null && return
  rm -rf "$2" # what it began
  cp -a "$1" "$2"
}

# Copies a user's project into the folder `$1`: train.cpp is the first whole program of README.md.
copy_consumer() {
  local snippets programs
  snippets="$(mktemp -d)"
  python3 "$repository/scripts/extract_snippets.py" "$snippets" "$repository/README.md" >/dev/null
  programs=("$snippets"/programs/readme_*.cpp)
  rm -rf "$1"
  cp -r "$repository/tests/install/consumer" "$1"
  cp "${programs[0]}" "$1/train.cpp"
  rm -r "$snippets"
}

# The torch of this clone, as CMake finds it.
find_torch() {
  local found
  found="$(cd "$repository" && cmake -P cmake/FindLibTorch.cmake)"
  [[ -n "$found" && "$found" != error:* ]] || fail "libtorch is missing: ${found:-run make deps}"
  printf '%s\n' "$found"
}

# "2.11" of the torch in the folder `$1`.
minor_version_of() {
  local file
  for file in "$1/build-version" "$1/version.py"; do # an unpacked libtorch has the first, the wheel the second
    [[ -e "$file" ]] || continue
    sed -nE "s/^(__version__ = ')?([0-9]+\.[0-9]+).*/\2/p" "$file" | sed 1q
    return
  done
  fail "neither build-version nor version.py in $1"
}

project_version() { sed -n 's/^project(Accelerate VERSION \([0-9.]*\).*/\1/p' "$repository/CMakeLists.txt"; }

# No file below the folder `$1` has a run path that is not relative to it.
require_relative_run_paths() {
  local file paths path checked=0
  while IFS= read -r -d '' file; do
    paths="$(readelf -d "$file" 2>/dev/null | sed -n 's/.*(R\(UN\)\?PATH).*\[\(.*\)\]/\2/p')"
    for path in ${paths//:/ }; do
      checked=$((checked + 1))
      [[ "$path" == '$ORIGIN'* ]] || fail "$file has the run path $paths"
    done
  done < <(find "$1" -type f \( -name '*accelerate*.so*' -o -name 'accelerate-selftest' \) -print0)
  [[ "$checked" -gt 0 ]] || fail "no file below $1 has a run path"
}
