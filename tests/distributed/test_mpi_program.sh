#!/bin/sh
# test_mpi_program.sh PROGRAM FOLDER: train, eval and grad under mpirun: the bits of ranks that are threads, output by one rank, and
# one line for a request that cannot be carried out.
set -eu
test_name=test_mpi_program
folder=$2
# shellcheck source=tests/support/mpi.sh
. "$(dirname "$0")/../support/mpi.sh"
# refuses TEXT RANKS ARGUMENT ...: one line of error, no result, a status that is not 0. (That status is 2 unless mpirun 4.1 crashes
# after it has ended a job, which it sometimes does.)
refuses() {
  text=$1
  shift
  mpi "$@"
  [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "$*: status $status"
  [ "$(grep -c '^bppsa: error: ' err)" -eq 1 ] || fail "$*: expected one line of error"
  grep -q "^bppsa: error: $text" err || fail "$*: expected \"$text\""
  [ ! -s out ] || fail "$*: printed a result"
}

train="train gru --seq-len 6 --hidden 5 --samples 150 --batch 64 --validation 0.2 --threads 1 --epochs 2"
# shellcheck disable=SC2086
"$program" $train --ranks 1 --save-weights one.safetensors >/dev/null
for ranks in 1 2 4; do
  # shellcheck disable=SC2086
  mpi $ranks $train --save-weights "mpi$ranks.safetensors" --log "mpi$ranks.jsonl"
  [ "$status" -eq 0 ] || fail "train on $ranks: status $status"
  cmp one.safetensors "mpi$ranks.safetensors" || fail "train on $ranks: other bits"
  [ "$(grep -c '^final loss' out)" -eq 1 ] || fail "train on $ranks: expected one summary"
  [ "$(wc -l <"mpi$ranks.jsonl")" -eq 3 ] || fail "train on $ranks: expected three lines of log"
  grep -q "^ranks      $ranks, mpi, split batch, gradients added up by a tree over blocks of 16 samples\$" out ||
    fail "train on $ranks: expected the line of ranks"
done
# shellcheck disable=SC2086
mpi 3 $train --ranks 3 --reduction library --save-weights library.safetensors
[ "$status" -eq 0 ] || fail "library: status $status"

# Pipelines: the bits of one device with the same micro-batches, and of an asynchronous scheme those of ranks that are threads.
pipeline="train gru --layers 3 --seq-len 6 --hidden 5 --samples 64 --batch 16 --validation 0.25 --threads 1 --epochs 2"
# shellcheck disable=SC2086
"$program" $pipeline --ranks 1 --micro-batches 4 --save-weights device.safetensors >/dev/null
# shellcheck disable=SC2086
"$program" $pipeline --ranks 2 --split pipedream --micro-batches 4 --save-weights threads.safetensors >/dev/null
for split in "2 1f1b device" "4 chimera device" "3 zb-h1 device" "2 pipedream threads"; do
  # shellcheck disable=SC2086
  set -- $split
  # shellcheck disable=SC2086
  mpi "$1" $pipeline --split "$2" --micro-batches 4 --save-weights pipeline.safetensors --checkpoint "ck$2"
  [ "$status" -eq 0 ] || fail "$2 on $1: status $status"
  cmp "$3.safetensors" pipeline.safetensors || fail "$2 on $1: other bits"
  [ "$(grep -c '^final loss' out)" -eq 1 ] || fail "$2 on $1: expected one summary"
done

# Speculative forward passes along time: the bits and the words of ranks that are threads.
speculation="train gru --seq-len 120 --hidden 5 --samples 32 --batch 8 --threads 1 --epochs 1 --forward-chunks 7 --warm-up 5"
# shellcheck disable=SC2086
"$program" $speculation --ranks 3 --split time --save-weights threads.safetensors >out
grep 'forward passes in parallel\|^forward .*spec' out >threads.txt
# shellcheck disable=SC2086
mpi 3 $speculation --split time --save-weights mpi.safetensors
[ "$status" -eq 0 ] || fail "speculation: status $status"
cmp threads.safetensors mpi.safetensors || fail "speculation: other bits"
grep 'forward passes in parallel\|^forward .*spec' out | cmp - threads.txt || fail "speculation: other words"
[ "$(wc -l <threads.txt)" -eq 2 ] || fail "speculation: expected two lines"

# Ranks that share the layers of a network: the bits of ranks that are threads.
"$program" data cifar10 --synthetic --samples 24 --out cifar >/dev/null
layers="train lenet5 --data cifar10:cifar --batch 10 --threads 1 --iterations 4 --momentum 0.9"
for split in "2 spatial" "3 filter" "2 channel" "4 data+spatial" "4 data+filter"; do
  # shellcheck disable=SC2086
  set -- $split
  # shellcheck disable=SC2086
  "$program" $layers --ranks "$1" --split "$2" --save-weights threads.safetensors >/dev/null
  # shellcheck disable=SC2086
  mpi "$1" $layers --split "$2" --save-weights layers.safetensors
  [ "$status" -eq 0 ] || fail "$2 on $1: status $status"
  cmp threads.safetensors layers.safetensors || fail "$2 on $1: other bits"
  [ "$(grep -c '^final loss' out)" -eq 1 ] || fail "$2 on $1: expected one summary"
done

evaluation="eval gru --weights one.safetensors --samples 50 --seq-len 6 --batch 7 --threads 1 --json"
# shellcheck disable=SC2086
"$program" $evaluation >alone.json
# shellcheck disable=SC2086
mpi 3 $evaluation
cmp alone.json out || fail "eval: other bits"

# Rows of one rank and of two, all of them right, from rank 0 alone.
mpi 2 bench ranks --split batch --seq-len 5 --hidden 3 --batch 4 --threads 1 --repeats 1 --json
[ "$status" -eq 0 ] || fail "bench ranks: status $status"
[ "$(grep -c '"transport": "mpi"' out)" -eq 1 ] || fail "bench ranks: expected one document"
[ "$(grep -o '"network": "lenet5", "share": "batch"' out | wc -l)" -eq 12 ] || fail "bench ranks: expected 12 rows of LeNet-5"

# shellcheck disable=SC2086
{
  refuses "--split: 'both', expected time or batch" 2 bench ranks --split both
  refuses "--ranks: '0', expected a whole number from 1 to 4096" 3 $train --ranks 0
  refuses "ranks 2: the launcher started 3, expected the same number or none" 3 $train --ranks 2
  refuses "--transport: 'udp', expected threads, mpi or nccl" 2 $train --transport udp
  refuses "--ranks: 3, more than the 2 samples of a batch" 3 $train --batch 2
  refuses "--split gpipe: layers: 4 for gpipe over 5 stages" 5 $pipeline --split gpipe --batch 10 --samples 80
  refuses "--split: channel: 7 ranks, more than the 6 channels of relu1, expected at most 6" 7 $layers --split channel
  refuses "--split: split \"gpip\": .* did you mean gpipe?" 2 $pipeline --split gpip
  refuses "'x.safetensors'\|x.safetensors: " 2 eval gru --weights x.safetensors
}
# What asks for no ranks is done by one process.
for words in "plan rnn --seq-len 10" "plan rnn --seq-len 10 --ranks 2 --json" "schedule 1f1b" --version "train gru --help"; do
  # shellcheck disable=SC2086
  "$program" $words >once.txt
  # shellcheck disable=SC2086
  mpi 3 $words
  [ "$status" -eq 0 ] || fail "$words: status $status"
  cmp once.txt out || fail "$words: expected one process to print"
done
refuses "'plam': unknown command, expected " 3 plam rnn
refuses "--seq-len: '0', expected a whole number" 3 plan rnn --seq-len 0

# A program without the module, in a shell that inherited a launcher's variables.
mkdir -p alone/bin
cp "$program" alone/bin/bppsa
status=0
# shellcheck disable=SC2086
PMI_RANK=0 alone/bin/bppsa $train >out 2>err || status=$?
[ "$status" -eq 2 ] || fail "no module: status $status"
grep -q '^bppsa: error: transport mpi: .*; --transport threads with --ranks P does without it$' err || fail "no module"
# shellcheck disable=SC2086
PMI_RANK=0 alone/bin/bppsa $train --transport threads --ranks 1 --save-weights alone.safetensors >out 2>err || fail "threads"
cmp one.safetensors alone.safetensors || fail "threads beside a launcher's variables: other bits"

status=0
# shellcheck disable=SC2086
timeout -k 5 120 mpirun $root --oversubscribe -n 2 "$program" $train : -n 1 "$program" $train --seed 1 >out 2>err || status=$?
[ "$status" -ne 0 ] && [ "$(grep -c '^bppsa: error: ' err)" -eq 1 ] || fail "other command lines: status $status"
grep -q '^bppsa: error: rank 2: another command line than rank 0, expected the same on all ranks$' err || fail "other command lines"
echo "test_mpi_program: passed"
