#!/usr/bin/env bash
# Runs a long group of tests on the build in build/, or with the preset that the second argument names. A test that was skipped did not pass, so the group has not either.
#
# usage: scripts/run_group.sh label [preset of the tests]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
ctest --preset "${2:-release-long}" -L "^$1\$" | tee "$log"
if grep -F '***Skipped' "$log" >/dev/null; then
  echo "error: some tests of the group $1 were skipped: what they say is in Testing/Temporary/LastTest.log of the build folder" >&2
  exit 1
fi
