#!/bin/sh
# test_mpi_calibrate.sh PROGRAM FOLDER: calibrate under mpirun writes a system file of MPI's messages, once, that oracle reads; a
# wrong request gives one line.
set -eu
program=$1
folder=$2
if ! command -v mpirun >/dev/null 2>&1; then
  echo "test_mpi_calibrate: no mpirun (package openmpi-bin)"
  exit 77
fi
root=""
if [ "$(id -u)" -eq 0 ]; then
  root=--allow-run-as-root
fi
# OpenMPI does not free all of its memory, so leaks are not checked here.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"

fail() {
  echo "test_mpi_calibrate: $*"
  cat out err 2>/dev/null
  exit 1
}
# mpi ARGUMENT ...: runs the program on three ranks; its results go to `out`, everything else to `err`
mpi() {
  status=0
  timeout -k 5 120 mpirun $root --oversubscribe -n 3 "$program" "$@" >out 2>err || status=$?
}

mpi calibrate lenet5 --out system.json --batch 2 --threads 1 --quick
[ "$status" -eq 0 ] || fail "calibrate: status $status"
[ "$(grep -c '^layers of lenet5' out)" -eq 1 ] || fail "expected one table"
grep -q '3 ranks over mpi' out || fail "expected 3 ranks over mpi"
grep -q '"transport": "mpi"' system.json || fail "expected the transport in the file"
"$program" oracle lenet5 system.json --processors 3 --batch 6 --strategy data >out 2>err || fail "oracle"
grep -q '^layers measured: ' out || fail "expected measured layers"

mpi calibrate lenet6 --out no.json
[ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "status $status of a wrong model"
[ "$(grep -c '^bppsa: error: ' err)" -eq 1 ] || fail "expected one line of error"
[ ! -e no.json ] || fail "a file of a refused request"
