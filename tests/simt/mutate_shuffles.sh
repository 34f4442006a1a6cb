#!/bin/sh
# mutate_shuffles.sh BUILD [FILE]: breaks every shuffle and vote in the source of the kernels, one at a time and in each way of
# mutant.h. For each mutant it runs the emulated tests of kernels.txt that reach the place, the shortest first, until one fails. A
# mutant that passes all of them survives. The script fails when no test reaches a place, when a mutant survives that mutants.txt
# does not list, and when a test kills a mutant that mutants.txt lists. BUILD is a built directory of the preset cpu. With FILE,
# only the places in that file are broken. JOBS in the environment is the number of tests at once. It takes some minutes and is
# run by hand.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" = --one ]; then # BUILD PLACE MUTANT TEST ...: prints what became of the mutant
  build=$2 place=$3 mutant=$4
  shift 4
  for test in "$@"; do
    if { SIMT_MUTANT=$place:$mutant BPPSA_TEST_DEVICE=cuda timeout 300 stdbuf -oL "$build/tests/simt/$test" ||
      echo "status $?"; } 2>&1 |
      grep -q -m 1 -e '\[  FAILED  \]' -e '^simt:' -e '^status'; then
      echo "${place#../../} $mutant killed by $test"
      exit 0
    fi
  done
  echo "${place#../../} $mutant survives $*"
  exit 0
fi
[ -d "${1:-}/tests/simt" ] || { echo "mutate_shuffles: ${1:-}: expected a build directory with tests/simt"; exit 2; }
build=$(cd "$1" && pwd) only=${2:-}
cd "$here/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# The source: "FILE:LINE KIND", a line for each call.
grep -rnoE --include='*.cu' --include='*.cuh' '__(shfl|any|all|ballot|reduce|match|syncthreads_(or|and|count))[a-z_]*\(' . |
  sed -E 's|^\./||; s/:__syncthreads.*/ block/; s/:__shfl.*/ lanes/; s/:__reduce.*/ lanes/; s/:__.*/ vote/' |
  grep -v -e '^build/' -e '^tests/simt/' | grep "^$only" | sort >"$scratch/source" ||
  { echo "mutate_shuffles: no shuffle or vote in the kernels' source ($only), expected some"; exit 2; }

# What the tests come by: "PLACE SECONDS TEST". The program's own tests (cli) take long and compute nothing that others do not.
mkdir "$scratch/tmp" && cd "$scratch/tmp" # tests put their files here
touch "$scratch/met"
for test in $(sed '/^#/d; s/.* //' "$here/kernels.txt" | grep -v '^simt_cli_' | sort -u); do
  began=$(date +%s)
  SIMT_PLACES=$scratch/places BPPSA_TEST_DEVICE=cuda "$build/tests/simt/$test" >"$scratch/log" 2>&1 ||
    { cat "$scratch/log"; echo "mutate_shuffles: $test fails without a mutant"; exit 1; }
  [ ! -f "$scratch/places" ] || sed "s/ .*/ $(($(date +%s) - began)) $test/" "$scratch/places" | sort -u >>"$scratch/met"
  rm -f "$scratch/places"
done

# A job a line: the place, a mutant, the tests.
touch "$scratch/failures"
sort -u "$scratch/source" | while read -r line kind; do
  count=$(grep -c -x "$line $kind" "$scratch/source")
  places=$(grep -F "/$line:" "$scratch/met" | sed 's/ .*//' | sort -u)
  met=$(printf '%s\n' "$places" | grep -c . || true)
  [ "$met" -eq "$count" ] || echo "mutate_shuffles: $line: tests come by $met of $count calls" >>"$scratch/failures"
  case $kind in
  block) mutants='own none every' ;;
  *) mutants='own none every beside mask' ;;
  esac
  for place in $places; do
    tests=$(grep -F "$place " "$scratch/met" | sort -k 2,2n -k 3 | sed 's/.* //' | paste -s -d ' ')
    for mutant in $mutants; do
      echo "$build $place $mutant $tests"
    done
  done
done >"$scratch/jobs"
xargs -P "${JOBS:-$(nproc)}" -L 1 "$here/mutate_shuffles.sh" --one <"$scratch/jobs" | sort -V >"$scratch/results"
cat "$scratch/results"

# Survivors against mutants.txt: "FILE|part of the source line|mutant ...|reason".
cd "$here/../.."
grep ' survives ' "$scratch/results" >"$scratch/alive" || true
touch "$scratch/known"
while IFS='|' read -r file part mutants reason; do
  case $file in '#'*) continue ;; "$only"*) ;; *) continue ;; esac
  for mutant in $mutants; do
    found=0
    for line in $(grep -nF "$part" "$file" | cut -d : -f 1); do
      grep "^$file:$line:[0-9]* $mutant survives " "$scratch/alive" >>"$scratch/known" && found=1
    done
    [ $found -eq 1 ] ||
      echo "mutate_shuffles: mutants.txt: $file: \"$part\": $mutant does not survive ($reason)" >>"$scratch/failures"
  done
done <"$here/mutants.txt"
grep -v -x -F -f "$scratch/known" "$scratch/alive" | sed 's/^/mutate_shuffles: a mutant survives: /' >>"$scratch/failures" || true
cat "$scratch/failures"
echo "mutate_shuffles: $(wc -l <"$scratch/source") places, $(wc -l <"$scratch/results") mutants," \
  "$(grep -c ' killed ' "$scratch/results") killed, $(wc -l <"$scratch/known") known to change nothing," \
  "$(wc -l <"$scratch/failures") findings"
[ ! -s "$scratch/failures" ]
