#!/bin/sh
# bench/gpu.sh RESULTS [BUNDLE]: runs the tests and the benchmarks on a machine with a GPU, its driver and the CUDA toolkit, within
# nine minutes. BUNDLE is what tools/gpu_bundle made, the directory or its .tar.xz [build/gpu/bundle or build/gpu/bundle.tar.xz].
#
# The parts run in this order. Each step has a time limit of its own, and the script names every step that it skips:
#   verify      the GPU's tests; compute-sanitizer's memcheck and racecheck on small cases
#   recurrent   bench rnn (tables 4 and 5), gru (table 6), lstm, T = 100000, crossover; bench forward; PyTorch in the same rounds
#               where python3 has it
#   python      the Python package's tests on the GPU, and its layers beside torch.nn's, where python3 has PyTorch
#   sparse      LeNet-5 and VGG-11, sparse products and scans, Jacobians
#   ranks       training without ranks, on one rank, and on two and three that share the GPU, also as stages of pipelines; over
#               NCCL where its library is; bench ranks
# PARTS="recurrent sparse" runs these parts alone, which leaves more time for each. RESULTS gets log.txt, a JSON document for each
# benchmark, and roofline.md. Exits 1 when a test, a sanitizer or a row's check failed, 2 when there is no GPU, or none that the
# bundle has code for.
set -u
SECONDS_IN_ALL=${SECONDS_IN_ALL:-530}
PARTS=${PARTS:-verify python recurrent sparse ranks}
start=$(date +%s)
root=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "gpu.sh: $# arguments, expected RESULTS [BUNDLE]"
  exit 2
fi
for name in $PARTS; do
  case $name in
  verify | python | recurrent | sparse | ranks) ;;
  *)
    echo "gpu.sh: PARTS: '$name', expected verify, python, recurrent, sparse or ranks"
    exit 2
    ;;
  esac
done
mkdir -p "$1" || exit 2
results=$(cd "$1" && pwd)
bundle=${2:-$root/build/gpu/bundle}
if [ ! -e "$bundle" ]; then
  bundle=$bundle.tar.xz
fi
log=$results/log.txt
: >"$log"
scratch=$(mktemp -d) || exit 2
trap 'rm -rf "$scratch"' EXIT
failed=""
skipped=""

wants() { # wants PART
  case " $PARTS " in
  *" $1 "*) return 0 ;;
  esac
  return 1
}
say() { printf '%s\n' "$*" | tee -a "$log"; }
elapsed() { echo $(($(date +%s) - start)); }
left() { echo $((SECONDS_IN_ALL - $(elapsed))); }

skip() { # skip WHAT WHY
  say "skipped: $1: $2"
  skipped="$skipped; $1: $2"
}

# part NAME SECONDS COMMAND ...: runs the command; its output goes to the log. Sets `code` to the command's exit code, to 124 when
# its time was over, to 77 when it was skipped. A test that exceeds its time has failed; any other command counts as skipped.
part() {
  name=$1
  most=$2
  shift 2
  if [ "$(left)" -lt "$most" ]; then
    most=$(left)
  fi
  if [ "$most" -lt 5 ]; then
    code=77
    skip "$name" "no time left"
    return
  fi
  say "== $name ($(elapsed) s, at most $most s)"
  began=$(date +%s)
  timeout -k 5 "$most" "$@" >"$scratch/out" 2>&1
  code=$?
  took=$(($(date +%s) - began))
  judge
}
# judge: counts the step `name`, which ended with the exit code `code` after `took` of its `most` seconds and printed $scratch/out.
judge() {
  cat "$scratch/out" >>"$log"
  case $code in
  0) say "   passed, $took s" ;;
  77) skip "$name" "$(tail -n 1 "$scratch/out")" ;;
  124 | 137)
    case $name in
    test_*) failed="$failed $name" ;;
    esac
    skip "$name" "its $took s were over"
    ;;
  *)
    say "   FAILED, exit code $code, $took s: $(tail -n 1 "$scratch/out")"
    failed="$failed $name"
    ;;
  esac
}

# ---- what this machine has ----

if [ -f "$bundle" ]; then
  mkdir "$scratch/bundle"
  tar -C "$scratch/bundle" -xf "$bundle" || exit 2
  bundle=$scratch/bundle
fi
bundle=$(cd "$bundle" 2>/dev/null && pwd)
program=$bundle/bppsa
if [ ! -x "$program" ]; then
  echo "gpu.sh: no program in $bundle, expected what tools/gpu_bundle makes"
  exit 2
fi
# fits CAPABILITY: whether the bundle has code for a GPU such as 90 (9.0): machine code of the same generation, not newer, or PTX,
# not newer.
fits() {
  while read -r architecture; do
    number=${architecture%%-*}
    case $architecture in
    *-real) [ $((number / 10)) -eq $(($1 / 10)) ] && [ "$number" -le "$1" ] && return 0 ;;
    *) [ "$number" -le "$1" ] && return 0 ;;
    esac
  done <"$bundle/architectures.txt"
  return 1
}
gpu=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd '0-9')
if [ -n "$gpu" ] && [ -f "$bundle/architectures.txt" ] && ! fits "$gpu"; then
  has=$(tr '\n' ' ' <"$bundle/architectures.txt" | sed 's/ $//')
  echo "gpu.sh: the GPU is an sm_$gpu, the bundle is for $has: build one with" \
    "ARCHITECTURES='$gpu-real;90' tools/gpu_bundle" | tee -a "$log"
  exit 2
fi
# The directories of CUDA's libraries, then of libraries that were installed as Python packages, as cuDNN often is.
LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64
if command -v python3 >/dev/null 2>&1; then
  packages=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || true)
  if [ -n "$packages" ]; then
    for folder in $(find "$packages" -name 'lib*.so*' -exec dirname {} + 2>/dev/null | sort -u); do
      LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$folder
    done
  fi
fi
export LD_LIBRARY_PATH BPPSA_TEST_DEVICE=cuda
cd "$scratch" || exit 2
part doctor 30 "$program" doctor
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv >>"$log" 2>&1 || true
if ! "$program" bench rnn --device cuda --seq-len 2 --batch 1 --hidden 2 --repeats 1 >"$scratch/out" 2>&1; then
  cat "$scratch/out" >>"$log"
  if grep -q 'no CUDA device\|has no CUDA' "$scratch/out"; then
    say "gpu.sh: $(tail -n 1 "$scratch/out")"
    exit 2
  fi
fi

# ---- verification ----

# The verification ends within this many seconds, because benchmarks need the rest of the time.
verify_within=$((SECONDS_IN_ALL * 2 / 5))
if [ "$PARTS" = verify ]; then
  verify_within=$SECONDS_IN_ALL
fi
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)

# check NAME SECONDS COMMAND ...: a step of the list that run_checks takes; no argument has blanks.
check() {
  name=$1
  seconds=$2
  shift 2
  printf '%s\t%s\t%s\n' "$name" "$seconds" "$*" >>"$scratch/list"
}
sanitize() { # sanitize WHAT COMMAND ...
  what=$1
  shift
  for tool in memcheck racecheck; do
    if [ -n "$sanitizer" ]; then
      check "$tool $what" 90 "$sanitizer" --tool "$tool" --error-exitcode 9 "$@"
    else
      skip "$tool $what" "no compute-sanitizer"
    fi
  done
}
# run_checks: runs the steps of $scratch/list side by side, each in a directory of its own, and then counts them as `part` does.
# Four at a time: the GPU goes from one to the other, and each of many would wait for most of its launches.
run_checks() {
  say "== $(wc -l <"$scratch/list") steps side by side"
  # shellcheck disable=SC2016
  tr '\n' '\0' <"$scratch/list" | xargs -0 -P 4 -n 1 sh -c '
    IFS="	" read -r name seconds command <<EOF
$3
EOF
    folder=$1/checks/$(printf %s "$name" | tr " /" "__")
    mkdir -p "$folder" && cd "$folder" || exit 0
    began=$(date +%s)
    left=$(($2 - began))
    if [ "$left" -lt 5 ]; then
      echo "no time left" >out
      echo "77 0" >code
      exit 0
    fi
    timeout -k 5 $((left < seconds ? left : seconds)) sh -c "$command" >out 2>&1 </dev/null
    echo "$? $(($(date +%s) - began))" >code' sh "$scratch" $((start + verify_within))
  while IFS='	' read -r name _; do
    folder=$scratch/checks/$(printf %s "$name" | tr ' /' '__')
    read -r code took <"$folder/code"
    mv "$folder/out" "$scratch/out"
    say "== $name"
    if [ "$code" -ne 0 ] && grep -q 'Device not supported' "$scratch/out"; then
      code=77
      echo "compute-sanitizer does not support this device" >>"$scratch/out"
    fi
    judge
  done <"$scratch/list"
}

if wants verify; then
  : >"$scratch/list"
  while read -r test; do
    check "$test" 60 "$bundle/$test"
  done <"$bundle/tests.txt"
  small="--device cuda --quick --seq-len 12 --hidden 3 --batch 2 --repeats 1 --threads 2"
  for model in rnn gru; do
    sanitize "$model" "$program" bench crossover --model "$model" "$small"
  done
  sanitize sparse "$program" bench scan --device cuda --quick --repeats 1 --threads 2
  for test in jacobian_fills scan_graph jacobian_products jacobian_passes scan_csr scan_csr_recording cnn_adversarial cnn_device \
    recurrent_device recurrent_forward_device recurrent_wide recurrent_ragged_device recurrent_directions_device; do
    sanitize "$test" "$bundle/test_$test"
  done
  run_checks
fi

# ---- benchmarks ----

left_out() { # prints what the latest step has left out
  if [ "$code" -ne 77 ]; then
    grep 'left out' "$scratch/out"
  fi
}
bench() { # bench FILE SECONDS COMMAND ...
  file=$1
  most=$2
  shift 2
  if [ "$(left)" -lt "$most" ]; then
    most=$(left) # so that the benchmark ends, and writes its document, in time
  fi
  part "$file" "$most" "$program" "$@" --repeats 11 --device cuda --time-limit $((most * 2 / 3)) --out "$results/$file.json"
  left_out
}
sparse() { # sparse FILE SECONDS ARGUMENTS ...: cuSPARSE and cuBLAS beside the products
  file=$1
  most=$2
  shift 2
  part "$file" "$most" "$program" bench "$@" --device cuda --quick --out "$results/$file.json"
  left_out
}
pytorch_has_cuda() {
  python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1
}
pytorch() { # pytorch MODEL: beside the methods and cuDNN, at T = 1000 and both initialisations
  if ! pytorch_has_cuda; then
    skip "pytorch_$1" "no PyTorch with CUDA in python3"
    return
  fi
  part "pytorch_$1" 45 "$program" bench "$1" --device cuda --seq-len 1000 --batch 16 --hidden 20 --time-limit 30 --repeats 11 \
    --rivals "$root/bench/rivals/recurrent.py" --out "$results/pytorch_$1.json"
}
if wants python; then
  if pytorch_has_cuda; then
    export PYTHONPATH="$bundle/python"
    part python_tests 60 python3 "$root/tests/python/test_torch.py" Gpu
    part python_layers 60 python3 "$root/bench/scripts/python_layers.py" --device cuda --seconds 1 --no-tests \
      --out "$results/python_layers.json"
  else
    skip "python" "no PyTorch with CUDA in python3"
  fi
fi
if wants recurrent; then
  for model in rnn gru; do
    bench "forward_$model" 40 bench forward --model "$model" --batch 16 --hidden 20
    # A training step at the lengths of the parallel forward pass, and of wide layers.
    for length in 1000 10000 30000; do
      bench "${model}_$length" 20 bench "$model" --seq-len "$length" --input 1 --batch 16 --hidden 20 --forward auto
    done
    bench "${model}_wide" 20 bench "$model" --seq-len 1000 --input 1 --batch 16 --hidden 256
  done
  bench lstm 20 bench lstm --seq-len 1000 --batch 16 --hidden 20 --forward auto
  bench rnn 100 bench rnn
  bench gru 50 bench gru
  bench long 45 bench rnn --seq-len 100000 --batch 16 --hidden 20
  bench crossover 30 bench crossover --quick --seq-len 10000
  pytorch rnn
  pytorch gru
fi
if wants sparse; then
  bench lenet5 25 bench lenet5 --quick
  bench vgg11 25 bench vgg11 --quick
  sparse product 60 product
  sparse product_vgg11 45 product --up-levels 2
  sparse scan 15 scan
  # The generation of sparse Jacobians, as a share of the write bandwidth.
  part jacobian 30 "$program" bench jacobian --device cuda --quick --out "$results/jacobian.json"
fi

# ranks FILE ARGUMENTS ...: a training run on ranks; its document says how many samples a second it took.
ranks() {
  file=$1
  shift
  before=$failed
  part "$file" 40 sh -c 'out=$1; shift; "$@" >"$out"' sh "$results/$file.json" "$program" train gru --seq-len 200 --hidden 20 \
    --samples 2560 --batch 256 --iterations 30 --device cuda --json --save-weights "$scratch/$file.safetensors" "$@"
  if [ "$code" -ne 0 ]; then
    rm -f "$results/$file.json" "$scratch/$file.safetensors"
  fi
  if [ "$code" -ne 0 ] && grep -q 'libnccl' "$scratch/out"; then
    failed=$before
    skip "$file" "no NCCL"
  fi
}
# same_weights ONE OTHER: whether two of these runs ended with the same weights, bit for bit.
same_weights() {
  if [ -f "$scratch/$1.safetensors" ] && [ -f "$scratch/$2.safetensors" ]; then
    part "bits of $1 and $2" 10 cmp "$scratch/$1.safetensors" "$scratch/$2.safetensors"
  else
    skip "bits of $1 and $2" "a run is missing"
  fi
}
if wants ranks; then
  ranks ranks_none
  ranks ranks_1 --ranks 1
  ranks ranks_1_nccl --ranks 1 --transport nccl
  ranks ranks_1_nccl_library --ranks 1 --transport nccl --reduction library
  ranks ranks_2 --ranks 2
  ranks ranks_2_time_bp --ranks 2 --split time --backward bp
  ranks ranks_2_time_chunked --ranks 2 --split time --algorithm chunked
  ranks ranks_3_time_blelloch --ranks 3 --split time --algorithm blelloch
  same_weights ranks_1 ranks_1_nccl
  same_weights ranks_1 ranks_2
  ranks ranks_1_micro --layers 4 --ranks 1 --micro-batches 8
  ranks ranks_3_1f1b --layers 4 --ranks 3 --split 1f1b --micro-batches 8
  ranks ranks_2_chimera --layers 4 --ranks 2 --split chimera --micro-batches 8
  ranks ranks_2_spectrain --layers 4 --ranks 2 --split spectrain --micro-batches 4
  ranks ranks_1_spectrain --layers 4 --ranks 1 --stages 2 --split spectrain --micro-batches 4
  same_weights ranks_1_micro ranks_3_1f1b
  same_weights ranks_1_micro ranks_2_chimera
  same_weights ranks_1_spectrain ranks_2_spectrain
  part ranks_bench 60 "$program" bench ranks --ranks 4 --split time --device cuda --quick --out "$results/ranks_bench.json"
fi

# ---- tables ----

documents=""
for file in rnn gru long; do
  if [ -f "$results/$file.json" ]; then
    documents="$documents $results/$file.json"
  fi
done
if [ -n "$documents" ]; then
  # shellcheck disable=SC2086
  sh "$root/bench/scripts/roofline.sh" $documents >"$results/roofline.md" || failed="$failed roofline"
else
  skip roofline "no documents"
fi
say "== $(elapsed) s in all"
skipped=${skipped#; }
say "skipped: ${skipped:-nothing}"
if [ -n "$failed" ]; then
  say "FAILED:$failed"
  exit 1
fi
say "nothing failed"
