#!/bin/sh
# test_gpu_script.sh SOURCE SCRATCH: runs bench/gpu.sh and bench/scripts/roofline.sh with programs that only pretend. The scripts
# must report what passes, fails, is skipped or takes too long, the exit code must say whether anything failed, and the table's
# ratios must be right.
set -eu
source=$1
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch/bundle"
cd "$scratch"

check() { # check WHAT COMMAND ...
  what=$1
  shift
  if ! "$@" >/dev/null; then
    echo "test_gpu_script: $what"
    cat results/log.txt 2>/dev/null || true
    exit 1
  fi
}
program() { # program NAME: a script from standard input
  { echo '#!/bin/sh' && cat; } >"bundle/$1"
  chmod +x "bundle/$1"
}
run() { # run EXPECTED-CODE: of bench/gpu.sh
  code=0
  SECONDS_IN_ALL=${limit:-530} PATH="$scratch/bin:$PATH" "$source/bench/gpu.sh" results bundle >out.txt 2>&1 || code=$?
  check "exit code $code, expected $1: $(tail -n 1 out.txt)" [ "$code" -eq "$1" ]
}

# No Python here: PyTorch's part is skipped by name.
mkdir bin
printf '#!/bin/sh\nexit 1\n' >bin/python3
chmod +x bin/python3

# A program that writes the document it is asked for.
cat >rows.json <<'END'
{"bench": "rnn", "device": {"name": "cuda:0"}, "rows": [
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "bp", "phase": "backward",
  "median_s": 2e-5, "min_s": 1.8e-5, "step_s": 2e-6, "ok": true, "flops": 4000000, "bytes": 8000, "peak_device_bytes": 3000000,
  "peak_flops_per_s": 5e13, "copy_bytes_per_s": 4e12, "floor_s": 1e-7},
 {"seq_len": 10, "batch": 2, "hidden": 3, "input": 1, "init": "default", "method": "cudnn_standard", "phase": "backward",
  "median_s": 5e-5, "step_s": 5e-6, "ok": true, "flops": 4000000, "bytes": 8000, "floor_s": 1e-7},
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
program bppsa <<'END'
here=$(dirname "$0")
while [ $# -gt 0 ]; do
  case $1 in
  --out) cp "$here/rows.json" "$2" ;;
  --save-weights) echo weights >"$2" ;;
  --transport)
    if [ "$2" = nccl ] && [ -e "$here/no_nccl" ]; then
      echo "bppsa: error: NCCL: libnccl.so.2: cannot open shared object file" >&2
      exit 2
    fi
    ;;
  esac
  shift
done
echo fine
END
printf 'test_one\ntest_two\n' >bundle/tests.txt
echo 'exit 0' | program test_one
echo 'exit 0' | program test_two
sanitized=$(sed -n '/for test in jacobian_fills/,/; do/p' "$source/bench/gpu.sh" | tr -d '\\;' | sed 's/.*for test in//; s/ do$//')
for test in $sanitized; do
  echo 'exit 0' | program "test_$test"
done
# The sanitizer runs what it is given.
printf '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift 2; done\nexec "$@"\n' >bin/compute-sanitizer
chmod +x bin/compute-sanitizer

run 0
check "no word that nothing failed" grep -q 'nothing failed' results/log.txt
check "no word of a test" grep -q '== test_two' results/log.txt
check "no word of the sanitizer" grep -q '== racecheck gru' results/log.txt
check "no word of sparse scans in the sanitizer" grep -q '== memcheck sparse' results/log.txt
check "PyTorch is not skipped by name" grep -q 'skipped: pytorch_rnn: no PyTorch with CUDA in python3' results/log.txt
for file in lenet5 vgg11 rnn gru product product_vgg11 scan long crossover; do
  check "no document $file.json" [ -s "results/$file.json" ]
done
check "no document jacobian.json" [ -s results/jacobian.json ]
for file in ranks_none ranks_1 ranks_1_nccl ranks_2 ranks_2_time_bp ranks_2_time_chunked ranks_3_time_blelloch ranks_1_micro \
  ranks_3_1f1b ranks_2_chimera ranks_2_spectrain ranks_1_spectrain ranks_bench; do
  check "no document $file.json" [ -s "results/$file.json" ]
done
check "the bits of ranks are not compared" grep -q '== bits of ranks_1 and ranks_2 ' results/log.txt
check "the bits of stages are not compared" grep -q '== bits of ranks_1_micro and ranks_3_1f1b ' results/log.txt
check "a row of the table is wrong" \
  grep -q '| bp | 20 us | 18 us | 2 us | 0.2 | 0.0004 | 0.1 us | 200.0 | 3.0 | 2.50 |$' results/roofline.md
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

rm -rf results
PARTS=sparse
export PARTS
run 0
check "a part that was not asked for has run" [ ! -e results/rnn.json ]
check "tests that were not asked for have run" [ "$(grep -c '== test_' results/log.txt)" -eq 0 ]
check "the part that was asked for has not run" [ -s results/product.json ]
rm -rf results
PARTS=ranks
touch bundle/no_nccl
run 0
rm bundle/no_nccl
check "a machine without NCCL is not reported" grep -q 'skipped: ranks_1_nccl: no NCCL' results/log.txt
check "what needs NCCL is compared without it" grep -q 'skipped: bits of ranks_1 and ranks_1_nccl: a run is missing' results/log.txt
check "ranks without NCCL have not run" [ -s results/ranks_2.json ]
PARTS=all
run 2
check "an unknown part is not named" grep -q "PARTS: 'all', expected" out.txt
unset PARTS

echo 'echo no such kernel; exit 3' | program test_two
run 1
check "a failed test is not named" grep -q '^FAILED:.* test_two' results/log.txt
check "its last line is missing" grep -q 'no such kernel' out.txt

echo 'echo not here; exit 77' | program test_two
run 0
check "a skipped test is not said" grep -q 'skipped: test_two: not here' results/log.txt

printf '#!/bin/sh\necho "Error: Device not supported"\nexit 9\n' >bin/compute-sanitizer
run 0
check "a sanitizer that cannot run is not reported" \
  grep -q 'skipped: memcheck gru: compute-sanitizer does not support this device' results/log.txt

echo 'sleep 60' | program test_two
limit=9
PARTS=verify
export PARTS
run 1
check "a test that does not end is not named" grep -q 'FAILED:.* test_two' results/log.txt
limit=4
PARTS=recurrent
run 0
limit=
unset PARTS
check "what had no time left is not said" grep -q 'skipped: gru: no time left' results/log.txt

# The bundle's code must fit the GPU: the preset's fits later ones, and not earlier ones.
echo 'exit 0' | program test_two
capability() { # capability X.Y ARCHITECTURE ...: of the GPU, and what the bundle has
  printf '#!/bin/sh\ncase $* in *compute_cap*) echo %s ;; esac\n' "$1" >bin/nvidia-smi
  chmod +x bin/nvidia-smi
  shift
  printf '%s\n' "$@" >bundle/architectures.txt
}
PARTS=sparse
export PARTS
# shellcheck disable=SC2046
set -- $(sed -n 's/.*"CMAKE_CUDA_ARCHITECTURES": "\(.*\)".*/\1/p' "$source/CMakePresets.json" | tr ';' ' ')
check "no architectures in the preset" [ $# -gt 0 ]
for gpu in 9.0 10.0 12.0; do
  capability "$gpu" "$@"
  run 0
done
capability 8.0 "$@"
run 2
check "a GPU without code is not named" \
  grep -q "^gpu.sh: the GPU is an sm_80, the bundle is for 90: build one with ARCHITECTURES='80-real;90' tools/gpu_bundle$" out.txt
capability 8.6 80-real 90
run 0
capability 10.0 80-real 90-real
run 2
rm bin/nvidia-smi bundle/architectures.txt
unset PARTS

rm bundle/bppsa
run 2
echo 'echo "bppsa: error: device cuda: no CUDA device found"; exit 2' | program bppsa
run 2
code=0
"$source/bench/scripts/roofline.sh" none.json >out.txt || code=$?
check "roofline.sh without a document: $code, expected 2" [ "$code" -eq 2 ]
echo '{}' >empty.json
code=0
"$source/bench/scripts/roofline.sh" empty.json >out.txt || code=$?
check "roofline.sh of no rows: $code, expected 2" [ "$code" -eq 2 ]
echo "test_gpu_script: fine"
