#!/usr/bin/env bash
# All checks of the sources that need no run. FULL=1 lets clang-tidy read every file of the library; without it, those
# that do not include libtorch and those that differ from the last commit.
#
# usage: scripts/lint.sh build-folder
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build="${1:?usage: scripts/lint.sh build-folder}"
status=0

run() {
  echo "== $1"
  shift
  "$@" || status=1
}

scope=changed
[[ -n "${FULL:-}" ]] && scope=all
run "format" scripts/format.sh --check
run "directions of includes" python3 scripts/check_rooms.py
run "public headers compile alone" python3 scripts/check_headers.py "$build"
run "clang-tidy ($scope)" python3 scripts/run_tidy.py "$build" --scope "$scope"
exit "$status"
