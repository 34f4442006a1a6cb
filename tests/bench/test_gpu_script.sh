#!/bin/sh
# test_gpu_script.sh SOURCE SCRATCH [PROGRAM]: runs bench/gpu.sh and bench/scripts/roofline.sh with programs that only pretend, and
# with a clock that they turn forward; PROGRAM is one with an emulated GPU. The script must keep every point that is over, go on
# where it was cut off, report what passes, fails, is skipped or takes too long, and the exit code must say whether anything failed.
set -eu
source=$1
scratch=$2
emulated=${3:-}
rm -rf "$scratch"
mkdir -p "$scratch/bundle" "$scratch/root/bench/results" "$scratch/bin" "$scratch/tmp"
cd "$scratch"
cp -r "$source/bench/gpu.sh" "$source/bench/gpu_points.txt" "$source/bench/scripts" "$source/bench/rivals" root/bench/
points=root/bench/gpu_points.txt

check() { # check WHAT COMMAND ...
  what=$1
  shift
  if ! "$@" >/dev/null; then
    echo "test_gpu_script: $what"
    tail -n 40 results/log.txt 2>/dev/null || true
    exit 1
  fi
}
program() { # program NAME: a script from standard input
  { echo '#!/bin/sh' && cat; } >"$1"
  chmod +x "$1"
}
run() { # run EXPECTED-CODE [NAME=VALUE ..]: of bench/gpu.sh
  expected=$1
  shift
  code=0
  runs=$((runs + 1))
  echo "$runs" >runs
  env PATH="$scratch/bin:$PATH" RUN="$runs" TMPDIR="$scratch/tmp" "$@" sh -c 'PID=$$ exec root/bench/gpu.sh results bundle' \
    >out.txt 2>&1 || code=$?
  check "exit code $code, expected $expected: $(tail -n 1 out.txt)" [ "$code" -eq "$expected" ]
}
runs=0
names() { # names FILE: of the points in a file of lines
  sed -n 's/.*"point": "\([a-z0-9_]*\)", "block": .*/\1/p' "$1"
}

# The clock: what runs turns it forward.
echo 1000 >clock
program bin/date <<'END'
[ "$1" = +%s ] || exec /bin/date "$@"
read -r now <"${0%/*}/../clock"
echo "$now"
END
echo 'exit 1' | program bin/nvidia-smi
# A Python that has PyTorch with CUDA; its scripts are the program below.
program bin/python3 <<'END'
case "$*" in
*nvidia*) exit 1 ;;
*torch.cuda*) [ ! -e "${0%/*}/../bundle/no_pytorch" ] || exit 1 ;;
-c*) [ ! -e "${0%/*}/../bundle/no_python" ] || exit 1 ;;
*) exec "${0%/*}/../bundle/bppsa" "$@" ;;
esac
END
# The sanitizer runs what it is given.
program bin/compute-sanitizer <<'END'
while [ "${1#--}" != "$1" ]; do shift 2; done
exec "$@"
END

# A program that writes the document it is asked for, and takes the time that it is given. It kills the script where more
# points have begun than `cut` says.
cat >rows.json <<'END'
{"bench": "rnn", "device": {"name": "cuda:0"}, "rows": [
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "bp", "phase": "backward",
  "median_s": 2e-5, "min_s": 1.8e-5, "step_s": 2e-6, "ok": true, "flops": 4000000, "bytes": 8000, "peak_device_bytes": 3000000,
  "peak_flops_per_s": 5e13, "copy_bytes_per_s": 4e12, "floor_s": 1e-7},
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "cudnn_standard", "phase": "backward",
  "median_s": 5e-5, "step_s": 5e-6, "ok": true, "flops": 4000000, "bytes": 8000, "floor_s": 1e-7},
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "cudnn_standard_bf16", "phase": "backward",
  "median_s": 1e-6, "min_s": 1e-6, "step_s": 1e-7, "ok": true, "flops": 4000000, "bytes": 8000, "floor_s": 1e-7},
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "cudnn_standard_tf32", "phase": "backward",
  "median_s": 1e-6, "min_s": 1e-6, "step_s": 1e-7, "ok": true, "flops": 4000000, "bytes": 8000, "floor_s": 1e-7},
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "cudnn_persist_static", "phase": "backward",
  "median_s": 1e-6, "step_s": 1e-7, "ok": false, "flops": 4000000, "bytes": 8000, "floor_s": 1e-7},
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "cudnn_persist_small", "phase": "backward",
  "median_s": 4e-6, "min_s": 3e-6, "step_s": 4e-7, "ok": true, "flops": 4000000, "bytes": 8000, "floor_s": 1e-7},
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "blelloch", "phase": "backward",
  "median_s": 4e-6, "min_s": 3.9e-6, "noisy": true, "step_s": 4e-7, "ok": true, "flops": 4000000, "bytes": 8000, "floor_s": 1e-7},
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "cudnn_wrong", "phase": "backward",
  "median_s": null, "min_s": null, "residual": 99, "ok": false, "flops": 4000000, "bytes": 8000, "floor_s": 1e-7},
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "cudnn_slow", "phase": "backward",
  "median_s": null, "min_s": null, "qualifying": 2e-7, "residual": 1, "ok": true, "flops": 4000000, "bytes": 8000},
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "cudnn_beside_it", "phase": "backward",
  "median_s": null, "min_s": null, "residual": 1, "ok": true, "flops": 4000000, "bytes": 8000, "floor_s": 1e-7},
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "cudnn_persist_dynamic", "phase": "backward",
  "median_s": null, "ok": false, "flops": 4000000, "bytes": 8000, "skipped": "cuDNN: layers: CUDNN_STATUS_NOT_SUPPORTED"}]}
END
tr -d '\n' <rows.json >bundle/rows.json
program bundle/bppsa <<'END'
here=${0%/*}
read -r run <"$here/../runs"
[ "$RUN" = "$run" ] || exit 0 # a step of a run that was cut
case "$*" in
*" --help")
  echo "--help --seq-len --batch --hidden --init --forward --repeats --rivals --earlier --time-limit --quick" \
    "--model --loss --up-levels --ranks --split --cold --input-gradient --cudnn-dtype $(cat "$here/also" 2>/dev/null)"
  exit
  ;;
esac
if [ -e "$here/no_gpu" ]; then
  echo "bppsa: error: device cuda: no CUDA device found"
  exit 2
fi
case "$*" in
doctor | "train rnn --device "*) exit 0 ;;
esac
if [ -e "$here/cut" ] && [ "$(grep -c ' s, at most ' "$here/../results/log.txt")" -gt "$(cat "$here/cut")" ]; then
  kill -9 "$PID" # not the script of a later run
  exit 1
fi
case "$0 $*" in
*/test_* | *" --threads 2") exit 0 ;; # which run side by side
esac
read -r now <"$here/../clock"
takes=12
echo "$*" >>"$here/calls"
while [ $# -gt 0 ]; do
  case $1 in
  --out) cp "$here/rows.json" "$2" ;;
  --time-limit) takes=$2 ;; # what takes longer would be stopped
  --save-weights) echo weights >"$2" ;;
  --json) echo '{"samples_per_s": 1}' ;;
  --transport)
    if [ "$2" = nccl ] && [ -e "$here/no_nccl" ]; then
      echo "bppsa: error: NCCL: libnccl.so.2: cannot open shared object file" >&2
      exit 2
    fi
    ;;
  esac
  shift
done
echo $((now + takes)) >"$here/../clock"
echo fine >&2
END
mv rows.json bundle/rows.json
echo abc123 >bundle/build.txt
sed -n 's/^[A-Z] [a-z0-9_]* [0-9]* tests //p; s/^[A-Z] [a-z0-9_]* [0-9]* sanitize //p' "$points" | tr ' ' '\n' >tests.txt
while read -r test; do
  case $test in
  *=* | all | rnn | gru | lstm | sparse) ;;
  *) cp bundle/bppsa "bundle/test_$test" ;;
  esac
done <tests.txt
printf 'test_cnn_device\ntest_recurrent_wide\n' >bundle/tests.txt
echo --weights --references >bundle/also
cp -r "$source/bench/weights" bundle/
mkdir bundle/references
echo references >bundle/references/lstm_30000.safetensors

# ---- the plan: every point, and it fits ----

mkdir root/bench/results/h200
cp "$source"/bench/results/h200/tests.json root/bench/results/h200/
check "the plan does not fit: $(root/bench/gpu.sh --plan | grep 'too long' | head -n 1)" root/bench/gpu.sh --plan
root/bench/gpu.sh --plan | sed -n 's/^\([A-Z]  *[a-z0-9_]*\) .*/\1/p' | tr -s ' ' >plan.txt
grep -o '^[A-Z] [a-z0-9_]*' "$points" | cmp - plan.txt || check "the plan has not the points of the list" false
sed 's/^A rnn_100000 [0-9]* /A rnn_100000 3 /' "$points" >late.txt
code=0
POINTS=late.txt root/bench/gpu.sh --plan >out.txt || code=$?
check "a point without enough time is no error: $code" [ "$code" -eq 1 ]
check "it is not named" grep -q '^too long: rnn_100000: [0-9.]* s, expected at most 3$' out.txt
sed 's/^C h128_b64 [0-9]* /C h128_b64 6 /' "$points" >late.txt # rivals are left out by its time, what it measures itself is not
code=0
POINTS=late.txt root/bench/gpu.sh --plan >out.txt || code=$?
check "a point without time for its own rows is no error: $code" [ "$code" -eq 1 ]
check "it is not named" grep -q '^too long: h128_b64: [0-9.]* s, expected at most 6$' out.txt
echo 'A twice' >late.txt
code=0
POINTS=late.txt root/bench/gpu.sh --plan >out.txt 2>&1 || code=$?
check "a wrong line is no error: $code" [ "$code" -eq 2 ]
check "it is not named" grep -q "error: late.txt: line 1: 'A twice', expected BLOCK NAME SECONDS KIND" out.txt

# Every point of block A says how far the weights' gradients are from those in float64: these benchmarks do.
inexact=$(grep '^A ' "$points" | grep -v ' bench \(rnn\|gru\|lstm\|step\) ' || true)
check "no error of the gradients: $inexact" [ -z "$inexact" ]

# The bundle gets references of every point of block A that can have them; the plan leaves their time out. Those with the loss on
# every step are too large.
program saves <<'ENDS'
echo "$*" >>"${0%/*}/saves.txt"
while [ "$1" != --save-references ]; do shift; done
echo references >"$2"
ENDS
mkdir made
check "no references are made" "$source/bench/scripts/gpu_references.py" "$PWD/saves" made
grep '^A [a-z0-9_]* [0-9]* bench \(rnn\|gru\|lstm\) ' "$points" | grep -v -e '--loss all' | cut -d ' ' -f 2 | sort >wanted.txt
check "block A has no points with references" [ "$(wc -l <wanted.txt)" -ge 18 ]
ls made/references | sed 's/\.safetensors$//' | sort | cmp - wanted.txt || check "references of other points are made" false
options='--weights made/weights/gru_2000.safetensors --device cpu --save-references made/references/gru_trained.safetensors'
check "references have other options than their point" grep -q "^bench gru --seq-len 1000 .* $options\$" saves.txt
sed -n '/^A lstm_100000 /p' "$points" >one.txt
sed 's/^A/B/' one.txt >two.txt
predicted() { POINTS=$1 root/bench/gpu.sh --plan | awk '$2 == "lstm_100000" { print $3 }'; }
check "the plan has the time of references that the bundle has: $(predicted one.txt) s, computed $(predicted two.txt) s" awk \
  -v read="$(predicted one.txt)" -v computed="$(predicted two.txt)" 'BEGIN { exit !(read > 0 && read + 1 < computed) }'
echo 'exit 3' | program saves
code=0
"$source/bench/scripts/gpu_references.py" "$PWD/saves" made >out.txt 2>&1 || code=$?
check "a program that fails is no error: $code" [ "$code" -eq 1 ]
check "what failed is not named" grep -q '^gpu_references.py: .* bench rnn --seq-len 100 .*: exit code 3, expected 0$' out.txt
check "the bundle gets no references" grep -q '^python3 bench/scripts/gpu_references.py build/gpu/bppsa ' "$source/tools/gpu_bundle"

# The bundle has the tests that come first.
for test in $(sed -n 's/^N [a-z0-9_]* [0-9]* tests //p' "$points" | tr ' ' '\n' | grep -v =); do
  check "no test_$test in the bundle" grep -q "test_$test\>" "$source/tools/gpu_bundle"
done
code=0
"$source/tools/gpu_bundle" --some >out.txt || code=$?
check "gpu_bundle takes an unknown option: $code" [ "$code" -eq 2 ]

# ---- cut at every point ----

# All points, in the order of the list; the bits of two runs are compared where both ran in one go.
grep '^[A-Z] ' "$points" | cut -d ' ' -f 2 | grep -v '^bits_' >expected.txt
check "the list has no points" [ "$(wc -l <expected.txt)" -gt 100 ]
mkdir results
: >results/log.txt
count=0
last=$(tail -n 1 expected.txt)
while read -r point; do
  [ "$point" != "$last" ] || break
  count=$((count + 1))
  begun=$(grep -c ' s, at most ' results/log.txt || true)
  echo $((begun + 1)) >bundle/cut # the next point after this one
  run 137 SECONDS_IN_ALL=100000
  tar -xOf results/results.tar points.jsonl >kept.jsonl
  check "cut after $point: the archive ends with another" [ "$(names kept.jsonl | tail -n 1)" = "$point" ]
  check "cut after $point: the archive has not all before" [ "$(wc -l <kept.jsonl)" -eq "$count" ]
done <expected.txt
rm bundle/cut
rm results/points.jsonl # the archive is enough to go on
printf '{"build": "abc123", "driver": "unknown", "point": "%s", "bl' "$last" >partial # a line that was not finished is none
tar -C results -xf results/results.tar points.jsonl
cat partial >>results/points.jsonl
run 0 SECONDS_IN_ALL=100000
names results/points.jsonl >found.txt
check "the points are not those of the list, in its order: $(diff expected.txt found.txt | head -n 3 | tr '\n' ' ')" \
  cmp expected.txt found.txt
twice=$(sed 's|/tmp\.[^/ ]*/|/|g' bundle/calls | sort | uniq -d | head -n 1)
check "a point ran twice: $twice" [ -z "$twice" ]
check "the end of the archive is missing" sh -c 'tar -xOf results/results.tar points.jsonl | cmp - results/points.jsonl'
check "what results have is not said" grep -q '^skipped: a result has new_kernels cnn_tf32 rnn_100 rnn_1000 ' results/log.txt
check "rivals are not judged by earlier points" \
  grep -q '^bench gru --seq-len 100 .*--time-limit 7 --earlier .*results/points.jsonl --device cuda --out ' bundle/calls
check "references of the bundle are not taken" grep -q \
  '^bench lstm --seq-len 30000 .* --references [^ ]*/bundle/references/lstm_30000.safetensors --device cuda ' bundle/calls
check "references are taken that do not exist" [ "$(grep -c -e --references bundle/calls)" -eq 1 ]
check "steps are not measured" \
  grep -q '^bench step --model lstm --seq-len 1000 .*--loss all .*--time-limit [0-9]* --earlier .* --device cuda ' bundle/calls
check "a line has not what it needs" \
  grep -q '^{"build": "abc123", "driver": "unknown", "point": "rnn_100", "block": "A", "code": 0, "took_s": 7, "bench": "rnn", ' \
  results/points.jsonl
check "tests have no line of their own" grep -q '"point": "cnn_tf32", .*"tests": \[{"test": "test_cnn_device", "code": 0, ' \
  results/points.jsonl
check "trained weights are not measured" \
  grep -q '^bench step --model gru .*--weights [^ ]*/bundle/weights/gru_all.safetensors --loss all .*--device cuda ' bundle/calls
check "a script of the sources did not run" grep -q '^[^ ]*/root/bench/scripts/python_layers.py .*--out ' bundle/calls
check "no word of the sanitizer" grep -q '^== racecheck gru$' results/log.txt
check "no word that nothing failed" grep -q 'nothing failed' results/log.txt
check "a row of the table is wrong" \
  grep -q '| bp | 20 us | 18 us | 2 us | 0.2 | 0.0004 | 0.1 us | 200.0 | 3.0 | 2.50 |$' results/roofline.md
check "a time in bf16 is held against the row's own type" \
  grep -q 'cudnn_standard_bf16 | 1 us | .* | 50.00 |$' results/roofline.md
check "a wrong row is not marked" grep -q 'cudnn_persist_static | 1 us .*|  | \*\*wrong\*\*' results/roofline.md
check "a wrong row, which has no time, is not said to be" \
  grep -q 'cudnn_wrong | not timed | | | | | | | | | \*\*wrong\*\*$' results/roofline.md
check "a right row without a time is not said to be" grep -q 'cudnn_beside_it | not timed | | | | | | | | |$' results/roofline.md
check "the single pass of a rival is not said to be" grep -q 'cudnn_slow | 0.2 us in its qualifying pass | ' results/roofline.md
check "a row that its minimum shows to be noisy has no mark, or a ratio" \
  grep -q 'cudnn_persist_small | ~4 us .* |  |$' results/roofline.md
check "a row that says it is noisy has no mark, or a ratio" grep -q 'blelloch | ~4 us .* |  |$' results/roofline.md
check "a refused algorithm is not listed" \
  grep -q 'cudnn_persist_dynamic | skipped: cuDNN: layers: CUDNN_STATUS_NOT_SUPPORTED' results/roofline.md


# Committed results of the same program and driver are skipped; those of another program or driver are not.
mv results/points.jsonl root/bench/results/h200/points_1.jsonl
rm -rf results
: >bundle/calls
run 0 SECONDS_IN_ALL=100000 BLOCKS='A B'
check "a committed point ran again" [ ! -s bundle/calls ]
echo def456 >bundle/build.txt
run 0 SECONDS_IN_ALL=100000 BLOCKS=B
check "points of another program are skipped" [ "$(grep -c '^bench rnn' bundle/calls)" -eq 15 ]
check "a block that was not asked for has run" [ "$(grep -c -v '^bench rnn' bundle/calls || true)" -eq 0 ]

# What a point needs and does not exist leaves it out by name.
rm bundle/also bundle/weights/gru_500.safetensors
touch bundle/no_pytorch
run 0 SECONDS_IN_ALL=100000 BLOCKS='A E P'
for left in 'step_rnn_trained: left out: bppsa bench step has no --weights' \
  'rnn_trained: left out: bppsa bench rnn has no --weights' 'python_tests: left out: no PyTorch with CUDA in python3'; do
  check "not left out by name: $left" grep -q "^skipped: $left\$" results/log.txt
done
check "a point that is left out has a line" [ "$(names results/points.jsonl | grep -c trained || true)" -eq 0 ]
check "a rival that says which library it lacks keeps its point away" grep -q '"point": "step_gru_pytorch", ' results/points.jsonl
rm bundle/no_pytorch
touch bundle/no_python
run 0 SECONDS_IN_ALL=100000 BLOCKS=C
for point in h128_b64 h128_b64_lstm; do
  check "without Python $point is not left out by name" grep -q "^skipped: $point: left out: no python3\$" results/log.txt
done
echo --weights >bundle/also # and no --references, which points do without
rm bundle/no_python
run 0 SECONDS_IN_ALL=100000 BLOCKS='A E'
check "a file that the bundle lacks is not named" \
  grep -q '^skipped: step_gru_trained_500: left out: no weights/gru_500.safetensors in the bundle$' results/log.txt
check "the next run does not make up for them" [ "$(names results/points.jsonl | grep -c -e trained -e pytorch)" -eq 15 ]
cp "$source/bench/weights/gru_500.safetensors" bundle/weights/

# ---- the clock ----

# What does not fit into the time that is left is named; the next run begins with it. Every run ends in time.
rm -rf results
: >first.txt
for go in 1 2 3; do
  before=$(cat clock)
  run 0
  check "run $go takes $(($(cat clock) - before)) s" [ $(($(cat clock) - before)) -le 510 ]
  names results/points.jsonl | wc -l >>first.txt
done
check "the first run is over too soon" [ "$(head -n 1 first.txt)" -gt 40 ]
check "what had no time left is not named" grep -q '^skipped: .*: no time left: it has [0-9]* s, [0-9]* s are left$' results/log.txt
names results/points.jsonl | grep -v '^bits_' | sort >found.txt
sort expected.txt | cmp - found.txt || check "several runs do not make the whole list" false

# ---- ranks ----

rm -rf results
touch bundle/no_nccl
run 0 SECONDS_IN_ALL=100000 BLOCKS=K
rm bundle/no_nccl
check "a machine without NCCL is not reported" grep -q 'skipped: ranks_1_nccl: no NCCL' results/log.txt
check "what needs NCCL is compared without it" grep -q 'skipped: bits_nccl: left out: a run is missing' results/log.txt
check "the bits of ranks are not compared" grep -q '"point": "bits_ranks", "block": "K", "code": 0' results/points.jsonl
check "the bits of stages are not compared" grep -q '"point": "bits_1f1b", "block": "K", "code": 0' results/points.jsonl
check "a rate is lost" grep -q '"point": "ranks_2", .*"samples_per_s": 1}' results/points.jsonl
run 2 BLOCKS=all
check "an unknown block is not named" grep -q "BLOCKS: 'all', expected some of N A E B C D R " out.txt

# ---- failures ----

printf '%s\n' 'N two 9 tests recurrent_wide cnn_device' 'A rnn 3 bench rnn --seq-len 10' 'R races 9 sanitize gru' >few.txt
fresh() {
  rm -rf results
  rm -f root/bench/results/h200/points_1.jsonl
}
fresh
echo 'echo no such kernel; exit 3' | program bundle/test_cnn_device
run 1 POINTS="$scratch/few.txt"
check "a failed test is not named" grep -q '^FAILED:.* test_cnn_device' results/log.txt
check "its last line is missing" grep -q 'no such kernel' out.txt
check "its line does not say so" \
  grep -q '"point": "two", "block": "N", "code": 1, .*"test_cnn_device", "code": 3' results/points.jsonl
fresh
echo 'echo not here; exit 77' | program bundle/test_cnn_device
run 0 POINTS="$scratch/few.txt"
check "a skipped test is not said" grep -q 'skipped: test_cnn_device: not here' results/log.txt
fresh
cp bin/compute-sanitizer sanitizer
printf '#!/bin/sh\necho "Error: Device not supported"\nexit 9\n' >bin/compute-sanitizer
run 0 POINTS="$scratch/few.txt"
check "a sanitizer that cannot run is not reported" \
  grep -q 'skipped: memcheck gru: compute-sanitizer does not support this device' results/log.txt
cp sanitizer bin/compute-sanitizer
fresh
mv bin/date date # of the machine: a test that does not end is stopped by it
sed -i 's/^N two 9/N two 3/' few.txt
echo 'sleep 60' | program bundle/test_cnn_device
run 1 POINTS="$scratch/few.txt" BLOCKS=N
check "a test that does not end is not named" grep -q 'FAILED:.* test_cnn_device' results/log.txt
check "a point that did not end counts as done" grep -q '^{"unfinished": true, .*"point": "two", ' results/points.jsonl
mv date bin/date

# The bundle's code must fit the GPU: the preset's fits later ones, and not earlier ones.
capability() { # capability X.Y ARCHITECTURE ...: of the GPU, and what the bundle has
  printf '#!/bin/sh\ncase $* in *compute_cap*) echo %s ;; esac\n' "$1" >bin/nvidia-smi
  chmod +x bin/nvidia-smi
  shift
  printf '%s\n' "$@" >bundle/architectures.txt
}
# shellcheck disable=SC2046
set -- $(sed -n 's/.*"CMAKE_CUDA_ARCHITECTURES": "\(.*\)".*/\1/p' "$source/CMakePresets.json" | tr ';' ' ')
check "no architectures in the preset" [ $# -gt 0 ]
for gpu in 9.0 10.0 12.0; do
  capability "$gpu" "$@"
  fresh
  run 0 POINTS="$scratch/few.txt" BLOCKS=A
done
capability 8.0 "$@"
run 2
check "a GPU without code is not named" \
  grep -q "^gpu.sh: the GPU is an sm_80, the bundle is for 90: build one with ARCHITECTURES='80-real;90' tools/gpu_bundle$" out.txt
capability 8.6 80-real 90
fresh
run 0 POINTS="$scratch/few.txt" BLOCKS=A
capability 10.0 80-real 90-real
run 2
rm bin/nvidia-smi bundle/architectures.txt


# ---- an emulated GPU ----

# Rows of a real program: cuDNN's stand-in qualifies, and an algorithm that lost at an earlier point is not run.
if [ -n "$emulated" ]; then
  fresh
  mv bin/date date
  cp "$emulated" bundle/bppsa
  rm -r bundle/references
  mkdir results
  row='"phase": "forward", "rival": true, "seq_len": 3, "batch": 2, "hidden": 3, "input": 1, "layers": 1, "dtype": "f32"'
  printf '{"bench": "rnn", "rows": [{"method": "cudnn_persist_dynamic", %s, "qualifying": 0.3}, %s]}\n' "$row" \
    "{\"method\": \"cudnn_standard\", $row, \"median_s\": 0.1}" >results/points.jsonl
  printf '%s\n' 'E step_6 60 bench step --model gru --seq-len 6 --batch 2 --hidden 3 --init default --repeats 2' \
    'A rnn_6 60 bench rnn --seq-len 6 --batch 2 --hidden 3 --init default --repeats 2' >few.txt
  check "no references are made" "$source/bench/scripts/gpu_references.py" "$emulated" bundle few.txt
  run 0 POINTS="$scratch/few.txt"
  tail -n 1 results/points.jsonl | tr '{' '\n' >rows.txt
  lost='"not run: 3.0 times as long as the fastest rival at T 3, predicted 600 ms", "predicted_s": 0.[56]'
  check "a rival that lost is not named" grep -q "\"cudnn_persist_dynamic\", .*$lost" rows.txt
  check "no graph of a step is timed" grep -q '"point": "step_6", .*"method": "auto_graph", .*"repeats": 2' results/points.jsonl
  check "no rival was timed" grep -q '"method": "cudnn_.*"rival": true, "median_s": [0-9]' rows.txt
  check "a step has no error" grep -q '"method": "auto_graph", .*"median_s": [0-9].*"residual": [0-9.e-]*, "ok": true' rows.txt
  check "a pass has no error" \
    grep -q '"method": "auto_graph", "phase": "backward", .*"residual": [0-9.e-]*, .*"ok": true' rows.txt
  check "the GPU's rows have not the references that the processor made" \
    grep -q '"method": "auto_graph", "phase": "backward", .*"reference": "file"' rows.txt
  check "references are computed beside them" [ "$(grep -c '"reference": "computed"' rows.txt || true)" -eq 0 ]
  check "own rows are not timed" grep -q '"method": "chunked_graph".*"repeats": 2' rows.txt
  mv date bin/date
fi

rm bundle/bppsa
run 2
echo 'echo "bppsa: error: device cuda: no CUDA device found"; exit 2' | program bundle/bppsa
run 2
code=0
"$source/bench/scripts/roofline.sh" none.json >out.txt || code=$?
check "roofline.sh without a document: $code, expected 2" [ "$code" -eq 2 ]
echo '{}' >empty.json
code=0
"$source/bench/scripts/roofline.sh" empty.json >out.txt || code=$?
check "roofline.sh of no rows: $code, expected 2" [ "$code" -eq 2 ]
echo "test_gpu_script: fine"
