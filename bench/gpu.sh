#!/bin/sh
# bench/gpu.sh RESULTS [BUNDLE]: measures on a machine with a GPU, its driver and the CUDA toolkit, within 510 seconds. BUNDLE is
# what tools/gpu_bundle made, the directory or its .tar.xz [build/gpu/bundle or build/gpu/bundle.tar.xz].
# bench/gpu.sh --plan: prints what would run, and how long it is predicted to take (bench/scripts/gpu_plan.py).
#
# bench/gpu_points.txt lists what runs, by worth, and explains each point. RESULTS gets
#   points.jsonl  a line for every point that is over: {"build", "driver", "point", "block", "code", "took_s", ..}, and the members
#                 of the document that its program wrote
#   log.txt       what the programs printed
#   results.tar   both, written anew after every point, so that a run that is cut off leaves all before
#   roofline.md   the tables of bench/scripts/roofline.sh; bench/scripts/gpu_table.py makes one of several runs
# A point that RESULTS (points.jsonl, or results.tar alone) or a points*.jsonl below bench/results already has for the same program
# and driver is skipped: the next run goes on where the last one ended. Each point has a time limit; the script names all that it
# skips. BLOCKS="A B" runs these blocks alone, SECONDS_IN_ALL=N within N seconds. Exits 1 when a test, a sanitizer or a row's check
# failed, 2 when there is no GPU, or none that the bundle has code for.
set -u
SECONDS_IN_ALL=${SECONDS_IN_ALL:-510}
root=$(cd "$(dirname "$0")/.." && pwd)
POINTS=${POINTS:-$root/bench/gpu_points.txt}
if [ "${1:-}" = --plan ]; then
  exec python3 "$root/bench/scripts/gpu_plan.py" "$POINTS"
fi
start=$(date +%s)
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "gpu.sh: $# arguments, expected RESULTS [BUNDLE]"
  exit 2
fi
all=$(sed -n 's/^\([A-Z]\) .*/\1/p' "$POINTS" | uniq | tr '\n' ' ')
BLOCKS=${BLOCKS:-$all}
for name in $BLOCKS; do
  case " $all" in
  *" $name "*) ;;
  *)
    echo "gpu.sh: BLOCKS: '$name', expected some of $all"
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
lines=$results/points.jsonl
scratch=$(mktemp -d) || exit 2
clocks=""
trap '[ -z "$clocks" ] || kill "$clocks" 2>/dev/null; rm -rf "$scratch"' EXIT
# Takes over what an earlier run left, from its archive if nothing else is there; a line that it did not finish is dropped.
if [ ! -e "$lines" ] && [ -f "$results/results.tar" ]; then
  tar -C "$results" -xf "$results/results.tar" || exit 2
fi
if [ -s "$lines" ] && [ "$(tail -c 1 "$lines" | wc -l)" -eq 0 ]; then
  sed '$d' "$lines" >"$scratch/whole" && mv "$scratch/whole" "$lines"
fi
touch "$lines" "$log" || exit 2
failed=""
skipped=""

say() {
  printf '%s\n' "$*"
  printf '%s\n' "$*" >>"$log"
}
elapsed() { echo $(($(date +%s) - start)); }
skip() { # skip WHAT WHY
  say "skipped: $1: $2"
  skipped="$skipped; $1: $2"
}

# judge NAME CODE SECONDS: counts a step that is over and printed $scratch/out. Sets `code` to 77 where it was skipped.
judge() {
  code=$2
  cat "$scratch/out" >>"$log"
  if [ "$code" -ne 0 ] && grep -q 'Device not supported' "$scratch/out"; then
    code=77
    echo "compute-sanitizer does not support this device" >>"$scratch/out"
  fi
  case $code in
  0) say "   passed, $3 s" ;;
  77) skip "$1" "$(tail -n 1 "$scratch/out")" ;;
  124 | 137)
    case $1 in
    test_*) failed="$failed $1" ;;
    esac
    skip "$1" "its $3 s were over"
    ;;
  *)
    say "   FAILED, exit code $code, $3 s: $(tail -n 1 "$scratch/out")"
    failed="$failed $1"
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
ask_gpu() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }
gpu=$(ask_gpu compute_cap | tr -cd '0-9')
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
build=$(cat "$bundle/build.txt" 2>/dev/null || "$program" --version 2>/dev/null | sed 's/.* //')
driver=$(ask_gpu driver_version)
driver=${driver:-unknown}
if ! "$program" train rnn --device cuda --seq-len 2 --samples 2 --batch 2 --iterations 1 >out 2>&1; then
  cat out >>"$log"
  if grep -q 'no CUDA device\|has no CUDA' out; then
    say "gpu.sh: $(tail -n 1 out)"
    exit 2
  fi
fi
say "== build $build, driver $driver, $(ask_gpu name)"
timeout -k 5 30 "$program" doctor >>"$log" 2>&1
nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader -lms 1000 \
  >"$results/clocks.csv" 2>/dev/null &
clocks=$!
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)

# The points that results have for this program and this driver: blanks around each.
key="{\"build\": \"$build\", \"driver\": \"$driver\", \"point\": \""
done=" $(find "$root/bench/results" -name 'points*.jsonl' -exec cat {} + | cat - "$lines" | cut -c 1-300 |
  awk -v key="$key" 'index($0, key) == 1 { rest = substr($0, length(key) + 1); sub(/".*/, "", rest); printf "%s ", rest }')"

# ---- what a point needs ----

python_with_cuda=""
has_pytorch() {
  if [ -z "$python_with_cuda" ]; then
    python_with_cuda=no
    python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1 && python_with_cuda=yes
  fi
  [ "$python_with_cuda" = yes ]
}
takes() { # takes X OPTION: whether `bppsa bench X` exists, and has the option
  eval "help=\${help_$1-unknown}"
  if [ "$help" = unknown ]; then
    help=$("$program" bench "$1" --help 2>/dev/null | tr '\n' ' ')
    eval "help_$1=\$help"
  fi
  case " $help" in
  *" $2 "*) return 0 ;;
  esac
  return 1
}
# lacks KIND ARGUMENTS ..: sets `lack` to what the point needs and does not exist, "" where nothing lacks.
lacks() {
  lack=""
  kind=$1
  shift
  case $kind in
  bench)
    takes "$1" --help || lack="no bppsa bench $1"
    for word in "$@"; do
      case $word in
      --*) [ -n "$lack" ] || takes "$1" "$word" || lack="bppsa bench $1 has no $word" ;;
      %*.py) [ -n "$lack" ] || python3 -c '' >/dev/null 2>&1 || lack="no python3" ;; # which names the libraries that it lacks
      esac
    done
    ;;
  tests)
    for word in "$@"; do
      case $word in
      all | *=*) ;;
      *) [ -n "$lack" ] || [ -x "$bundle/test_$word" ] || lack="no test_$word in the bundle" ;;
      esac
    done
    ;;
  sanitize) [ -n "$sanitizer" ] || lack="no compute-sanitizer" ;;
  python) has_pytorch || lack="no PyTorch with CUDA in python3" ;;
  same)
    for word in "$@"; do
      [ -n "$lack" ] || [ -f "$scratch/$word.safetensors" ] || lack="a run is missing"
    done
    ;;
  esac
  for word in "$@"; do
    case $word in
    @*) [ -n "$lack" ] || [ -e "$bundle/${word#@}" ] || lack="no ${word#@} in the bundle" ;;
    %*) [ -e "$root/${word#%}" ] || lack="no ${word#%}" ;;
    esac
  done
}

# ---- kinds of points: each prints to $scratch/out, leaves its document in $scratch/document, and sets `code` ----

run_bench() { # run_bench X ARGUMENTS ..
  what=$1
  ! takes "$what" --time-limit || set -- "$@" --time-limit "$soft"
  ! takes "$what" --earlier || set -- "$@" --earlier "$lines"
  references=$bundle/references/$name.safetensors
  if [ -e "$references" ] && takes "$what" --references; then
    set -- "$@" --references "$references"
  fi
  timeout -k 5 "$hard" "$program" bench "$@" --device cuda --out "$scratch/document" >"$scratch/out" 2>&1 </dev/null
  judge "$name" $? $(($(date +%s) - began))
  [ "$code" -eq 77 ] || grep -e 'left out' -e 'note: --references' "$scratch/out"
}
run_python() { # run_python FILE ARGUMENTS ..
  export PYTHONPATH="$bundle/python"
  case $1 in
  tests/*) ;;
  *) set -- "$@" --out "$scratch/document" ;;
  esac
  script=$root/$1
  shift
  timeout -k 5 "$hard" python3 "$script" "$@" >"$scratch/out" 2>&1 </dev/null
  judge "$name" $? $(($(date +%s) - began))
}
run_train() { # run_train OPTIONS ..; its document says how many samples a second it took
  timeout -k 5 "$hard" "$program" train gru --seq-len 200 --hidden 20 --samples 2560 --batch 256 --iterations 30 --device cuda \
    --json --save-weights "$scratch/$name.safetensors" "$@" >"$scratch/document" 2>"$scratch/out" </dev/null
  code=$?
  if [ "$code" -ne 0 ]; then
    rm -f "$scratch/document" "$scratch/$name.safetensors"
    if grep -q libnccl "$scratch/out"; then
      code=77
      echo "no NCCL" >>"$scratch/out"
    fi
  fi
  judge "$name" "$code" $(($(date +%s) - began))
}
run_same() { # run_same A B
  cmp "$scratch/$1.safetensors" "$scratch/$2.safetensors" >"$scratch/out" 2>&1
  judge "$name" $? 0
}
# Runs the steps of $scratch/list, "NAME	COMMAND" a line, side by side, each in a directory of its own: four at a time, because the
# GPU goes from one to the other. `code` becomes 1 where one failed, 124 where one was not over.
run_list() {
  # shellcheck disable=SC2016
  tr '\n' '\0' <"$scratch/list" | xargs -0 -P 4 -n 1 sh -c '
    folder=$1/checks/$(printf %s "${3%%	*}" | tr " /" "__")
    mkdir -p "$folder" && cd "$folder" || exit 0
    began=$(date +%s)
    left=$(($2 - began))
    if [ "$left" -lt 2 ]; then
      echo "no time left" >out
      echo "77 0" >code
      exit 0
    fi
    timeout -k 5 "$left" sh -c "${3#*	}" >out 2>&1 </dev/null
    echo "$? $(($(date +%s) - began))" >code' sh "$scratch" $((began + hard))
  worst=0
  comma=""
  printf '{"tests": [' >"$scratch/document"
  while IFS='	' read -r step _; do
    folder=$scratch/checks/$(printf %s "$step" | tr ' /' '__')
    read -r code took <"$folder/code"
    mv "$folder/out" "$scratch/out"
    say "== $step"
    judge "$step" "$code" "$took"
    printf '%s{"test": "%s", "code": %d, "took_s": %d}' "$comma" "$step" "$code" "$took" >>"$scratch/document"
    comma=", "
    case $code in
    0 | 77) ;;
    124 | 137) worst=124 ;;
    *) [ "$worst" -ne 0 ] || worst=1 ;;
    esac
  done <"$scratch/list"
  echo ']}' >>"$scratch/document"
  code=$worst
}
run_tests() { # run_tests [NAME=VALUE ..] X ..
  : >"$scratch/list"
  environment=""
  for word in "$@"; do
    case $word in
    *=*) environment="$environment$word " ;;
    all) sed "s|.*|&	$environment$bundle/&|" "$bundle/tests.txt" >>"$scratch/list" ;;
    *) printf 'test_%s\t%s%s/test_%s\n' "$word" "$environment" "$bundle" "$word" >>"$scratch/list" ;;
    esac
  done
  run_list
}
run_sanitize() { # run_sanitize MODEL-OR-TEST ..
  : >"$scratch/list"
  small="--device cuda --quick --repeats 1 --threads 2"
  for word in "$@"; do
    case $word in
    rnn | gru | lstm)
      command="$program bench crossover --model $word --seq-len 6 --hidden 3 --batch 2 --init default $small"
      ;;
    sparse) command="$program bench scan $small" ;;
    *) command=$bundle/test_$word ;;
    esac
    for tool in memcheck racecheck; do
      printf '%s %s\t%s --tool %s --error-exitcode 9 %s\n' "$tool" "$word" "$sanitizer" "$tool" "$command" >>"$scratch/list"
    done
  done
  run_list
}

# ---- the points ----

# keep: the line of the point that is over, then the archive anew. A point that ran out of time has no key, so that the next run
# begins it again.
keep() {
  head="{\"unfinished\": true, \"build\": \"$build\", \"driver\": \"$driver\", \"point\": \""
  case $code in
  124 | 137 | 77) ;;
  *) head=$key ;;
  esac
  {
    printf '%s%s", "block": "%s", "code": %d, "took_s": %d' "$head" "$name" "$block" "$code" $(($(date +%s) - began))
    if [ -s "$scratch/document" ]; then
      printf ', '
      tr -d '\n' <"$scratch/document" | sed 's/^ *{//'
    else
      printf '}'
    fi
    echo
  } >"$scratch/line"
  cat "$scratch/line" >>"$lines"
  archive
}
archive() { # a point has ended: nothing of it is lost where the run ends now
  tar -C "$results" -cf "$results/.results.tar" points.jsonl log.txt clocks.csv && mv "$results/.results.tar" "$results/results.tar"
}

had=""
grep '^[A-Z] ' "$POINTS" >"$scratch/points"
while read -r block name most kind arguments <&3; do
  case " $BLOCKS " in
  *" $block "*) ;;
  *) continue ;;
  esac
  case $done in
  *" $name "*)
    had="$had $name"
    continue
    ;;
  esac
  # shellcheck disable=SC2086
  lacks "$kind" $arguments
  if [ -n "$lack" ]; then
    skip "$name" "left out: $lack"
    continue
  fi
  began=$(date +%s)
  left=$((start + SECONDS_IN_ALL - began))
  if [ "$left" -lt "$most" ]; then
    skip "$name" "no time left: it has $most s, $left s are left"
    continue
  fi
  # A point that has begun and takes half as long again is not thrown away: no further part of it begins after its time.
  hard=$((most + most / 2 + 2))
  [ "$hard" -le "$left" ] || hard=$left
  soft=$((hard - 2 < most ? hard - 2 : most))
  [ "$soft" -ge 1 ] || soft=1
  say "== $name ($((began - start)) s, at most $most s)"
  rm -rf "$scratch/document" "$scratch/checks"
  words=$(printf '%s' "$arguments" | sed "s|@|$bundle/|g; s|%|$root/|g")
  # shellcheck disable=SC2086
  "run_$kind" $words
  keep
done 3<"$scratch/points"

[ -z "$had" ] || say "skipped: a result has$had"
sh "$root/bench/scripts/roofline.sh" "$lines" >"$results/roofline.md" || skip roofline "no rows"
say "== $(elapsed) s in all"
skipped=${skipped#; }
say "skipped: ${skipped:-nothing}"
if [ -n "$failed" ]; then
  say "FAILED:$failed"
  archive
  exit 1
fi
say "nothing failed"
archive
