#!/usr/bin/env bash
# Formats all C++ files in place; with --check only says which are not formatted. One version of clang-format for all:
# others break lines differently.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tool=clang-format-14
command -v "$tool" >/dev/null || {
  echo "$tool is missing: run 'make deps'" >&2
  exit 1
}
mapfile -d '' -t files < <(find include src tests examples bench -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z)
if [[ "${1:-}" == --check ]]; then
  "$tool" --style=file --dry-run -Werror "${files[@]}" || {
    echo "these files are not formatted: run 'make format'" >&2
    exit 1
  }
  echo "${#files[@]} files are formatted"
else
  "$tool" --style=file -i "${files[@]}"
fi
