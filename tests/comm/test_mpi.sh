#!/bin/sh
# test_mpi.sh PROGRAM RANKS [breaks]: runs the cases of mpi_ranks, or another program of tests, under mpirun, with RANKS ranks. With
# "breaks" it runs jobs of mpi_ranks that fail: one rank reports the error, no rank hangs, and no process is left running.
set -eu
ranks=$2
test_name=test_mpi
# shellcheck source=tests/support/mpi.sh
. "$(dirname "$0")/../support/mpi.sh"
output=$(mktemp)
trap 'rm -f "$output" "$output".*' EXIT

# start RANKS ARGUMENT ...: runs a job for at most two minutes and keeps its status and output
start() {
  n=$1
  shift
  status=0
  OMPI_MCA_rmaps_base_oversubscribe=1 timeout -k 5 120 \
    mpirun $root --oversubscribe -n "$n" "$program" "$@" >"$output" 2>&1 || status=$?
}
fail() {
  echo "$test_name: $*; the job's output:"
  cat "$output"
  exit 1
}
# breaks CASE TEXT: only one rank prints the text, the job ends long before the time limit, and its status is not 0. (The status may
# be that of a crash: mpirun 4.1 itself sometimes crashes after it has ended a job.)
breaks() {
  begin=$(date +%s)
  start 3 "$1"
  [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "$1: status $status"
  [ "$(grep -c '^HERE' "$output")" -eq 1 ] || fail "$1: expected one rank to call the error its own"
  grep -q "^HERE $2" "$output" || fail "$1: expected \"HERE $2\""
  [ $(($(date +%s) - begin)) -lt 40 ] || fail "$1: took $(($(date +%s) - begin)) s"
}

if [ "${3:-}" != breaks ]; then
  start "$ranks"
  [ "$status" -eq 0 ] || fail "status $status"
  exit 0
fi

breaks fails 'ERR_IO: failed 1: rank 1: disk full'
breaks aborts 'ERR_COMM: failed 1: rank 1 gave up: a key was pressed'
breaks dies 'ERR_COMM: failed 1: rank 1, [a-z]*.* bytes.*: rank 1 died at operation 2, as a test wants it'
breaks stalls 'ERR_COMM: failed [02]: rank [02] waited 0.5 s for the other ranks: allreduce, sum, 24 bytes, at up-sweep 4'
breaks stopped 'ERR_COMM: failed [02]: rank [02] waited 0.5 s for the other ranks: allreduce, sum, 24 bytes, at up-sweep 4'
breaks split 'ERR_COMM: failed [02]: rank [02] waited 0.5 s for the other ranks: MPI: split, at the layout'
breaks silence 'ERR_COMM: failed [0-2]: rank'
breaks forgets "ERR_ARGUMENT: failed 1: rank 1: the rank's function returned and did not wait for its request: recv from rank 0"

# A rank that is stopped before MPI has started: it cannot be told of a failure, and the ranks that wait for it report the deadline.
start 3 start
[ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "start: status $status"
grep -q '^HERE ERR_COMM: failed -1: waited 10 s for the other ranks: MPI: start' "$output" || fail "start: expected the deadline"

# A rank that is stopped while MPI ends. In front of the end the others wait for it: one of them reports that, rank 1 if rank 0 is
# stopped. Behind it only the launcher waits, and the system ends the rank.
# mpirun 4.1 itself sometimes says how the job has ended and then does not end: such a job runs once more.
stopped() {
  output="$output.$1.$2"
  for attempt in 1 2; do
    begin=$(date +%s)
    start 3 "$1" "$2"
    took=$(($(date +%s) - begin))
    [ "$took" -gt 100 ] && grep -q '^mpirun noticed that process' "$output" || break
  done
  [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "$1 $2: status $status"
  [ "$took" -le 11 ] || fail "$1 $2: took $took s, expected its deadline and 10 s at most"
  [ "$(grep -c '^HERE' "$output")" -eq "$3" ] || fail "$1 $2: expected $3 ranks to call the error their own"
  [ "$3" -eq 0 ] || grep -q "^HERE ERR_COMM: failed $4: rank $4: waited 1 s for the other ranks: MPI: finish" "$output" ||
    fail "$1 $2: expected the deadline of rank $4"
  rm -f "$output"
}
stopped end 0 1 1 &
first=$!
stopped end 1 1 0 &
second=$!
stopped gone 1 0
wait $first
wait $second

start 3 killed # the launcher ends the others
[ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "killed: status $status"
start 3 sizes
[ "$status" -eq 0 ] || fail "sizes: status $status"

# Impossible requests: one rank prints one line.
start 3 contract 4
[ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "ranks 4: status $status"
grep -q '^HERE ERR_ARGUMENT: failed -1: ranks 4: the launcher started 3' "$output" || fail "ranks 4"
[ "$(grep -c '^HERE' "$output")" -eq 1 ] || fail "ranks 4: expected one rank to report it"
status=0
env -i PATH="$PATH" "$program" >"$output" 2>&1 || status=$?
[ "$status" -eq 4 ] || fail "without mpirun: status $status"
grep -q 'no launcher has started this process, expected mpirun -n P or srun in front of the program' "$output" ||
  fail "without mpirun"
