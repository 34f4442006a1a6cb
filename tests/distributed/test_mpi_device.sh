#!/bin/sh
# test_mpi_device.sh PROGRAM FOLDER: train on GPUs under mpirun, data parallel, along time and in stages: arrays in GPU memory
# travel between processes, and every run ends with the bits of ranks that are threads. PROGRAM: the program, on emulated GPUs or on
# real ones.
set -eu
test_name=test_mpi_device
folder=$2
# shellcheck source=tests/support/mpi.sh
. "$(dirname "$0")/../support/mpi.sh"
export SIMT_DEVICES="${SIMT_DEVICES:-2}" # of the emulation; with three ranks two share one
small="--hidden 3 --samples 40 --batch 32 --validation 0.1 --threads 1 --iterations 2 --device cuda"
# same RANKS ARGUMENT ...: a run on ranks under mpirun ends with the weights of the same ranks as threads
same() {
  ranks=$1
  shift
  # shellcheck disable=SC2086
  "$program" train "$@" $small --ranks "$ranks" --save-weights threads.safetensors >out 2>err || fail "threads, $*"
  # shellcheck disable=SC2086
  mpi "$ranks" train "$@" $small --save-weights mpi.safetensors
  [ "$status" -eq 0 ] || fail "mpi, $*: status $status"
  grep -q "^ranks      $ranks, mpi, " out || fail "mpi, $*: expected the line of ranks"
  cmp threads.safetensors mpi.safetensors || fail "$*: other bits than threads"
  rm threads.safetensors mpi.safetensors
}

same 2 gru --seq-len 5
# shellcheck disable=SC2086
"$program" train gru --seq-len 5 $small --ranks 1 --save-weights alone.safetensors >out 2>err || fail "alone"
# shellcheck disable=SC2086
"$program" train gru --seq-len 5 $small --ranks 2 --save-weights threads.safetensors >out 2>err || fail "two ranks beside one"
cmp alone.safetensors threads.safetensors || fail "data parallel: other bits than one rank"
rm alone.safetensors threads.safetensors
same 2 rnn --seq-len 5 --reduction library
same 2 gru --seq-len 7 --split time --backward bp --micro-batches 2
same 2 rnn --seq-len 7 --split time --algorithm chunked --loss all
same 3 gru --seq-len 9 --split time --algorithm blelloch --loss all
same 3 gru --seq-len 30 --split time --forward-chunks 5 --warm-up 2 --loss all
small="--hidden 3 --samples 40 --batch 10 --validation 0.5 --threads 1 --epochs 1 --device cuda"
same 3 gru --seq-len 4 --layers 3 --split 1f1b --micro-batches 5
same 2 rnn --seq-len 4 --layers 3 --split pipedream --micro-batches 2
echo "test_mpi_device: passed"
