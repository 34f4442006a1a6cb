#!/bin/sh
# test_mpi_calibrate.sh PROGRAM FOLDER: calibrate under mpirun writes a system file of MPI's messages, once, that oracle reads; a
# wrong request gives one line.
set -eu
test_name=test_mpi_calibrate
folder=$2
# shellcheck source=tests/support/mpi.sh
. "$(dirname "$0")/../support/mpi.sh"

mpi 3 calibrate lenet5 --out system.json --batch 2 --threads 1 --quick
[ "$status" -eq 0 ] || fail "calibrate: status $status"
[ "$(grep -c '^layers of lenet5' out)" -eq 1 ] || fail "expected one table"
grep -q '3 ranks over mpi' out || fail "expected 3 ranks over mpi"
grep -q '"transport": "mpi"' system.json || fail "expected the transport in the file"
"$program" oracle lenet5 system.json --processors 3 --batch 6 --strategy data >out 2>err || fail "oracle"
grep -q '^layers measured: ' out || fail "expected measured layers"

mpi 3 calibrate lenet6 --out no.json
[ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "status $status of a wrong model"
[ "$(grep -c '^bppsa: error: ' err)" -eq 1 ] || fail "expected one line of error"
[ ! -e no.json ] || fail "a file of a refused request"
