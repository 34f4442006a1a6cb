#!/bin/sh
# check_kernels.sh SOURCE: every __global__ function of the library and of the tests is listed in tests/simt/kernels.txt with its
# test, and nothing else is.
set -eu
cd "$1"
written=$(cat */*.cu */*.cuh */*/*.cu */*/*.cuh | tr '\n' ' ' | sed 's|__launch_bounds__([A-Za-z0-9_:,<> ]*)||g' |
  grep -o '__global__ [^(;{]*(' | sed 's/ *($//; s/.*[ *]//' | sort)
listed=$(sed '/^[#-]/d; s/ .*//' tests/simt/kernels.txt | sort)
if [ -z "$written" ]; then
  echo "check_kernels: no kernel found in $1/*/ and $1/*/*/, *.cu and *.cuh, expected some"
  exit 1
fi
if [ "$written" != "$listed" ]; then
  echo "check_kernels: kernels of the source (<) and of tests/simt/kernels.txt (>) differ:"
  printf '%s\n' "$written" >"${TMPDIR:-/tmp}/kernels.$$"
  printf '%s\n' "$listed" | diff "${TMPDIR:-/tmp}/kernels.$$" - || true
  rm -f "${TMPDIR:-/tmp}/kernels.$$"
  exit 1
fi
