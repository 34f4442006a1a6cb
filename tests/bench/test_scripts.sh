#!/bin/sh
# test_scripts.sh FOLDER: every script of bench/scripts says what it is for (--help, exit code 0), and answers missing arguments, a
# program or a build that does not exist, and a word for a number with one line that says what is expected, exit code 2.
set -eu
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# expect STATUS TEXT SCRIPT [ARGUMENT ...]: its exit code, and a text in its last line
expect() {
  expected=$1
  text=$2
  shift 2
  status=0
  python3 "$@" >"$output" 2>&1 </dev/null || status=$?
  if [ "$status" -ne "$expected" ] || grep -q Traceback "$output" || ! tail -n 1 "$output" | grep -q -e "$text"; then
    echo "test_scripts: $*: status $status, expected $expected and \"$text\" in the last line:"
    cat "$output"
    exit 1
  fi
}

found=0
for script in "$1"/*.py; do
  name=$(basename "$script")
  found=$((found + 1))
  case $name in
  program.py) continue ;; # what the others share
  bfloat16.py | python_around.py | python_layers.py | wide_layers.py) # say what they need where PyTorch is missing
    python3 -c 'import torch, bppsa.torch' 2>/dev/null || {
      expect 2 "^$name: error: .*expected PyTorch" "$script" --help
      continue
    }
    ;;
  esac
  expect 0 "" "$script" --help
  grep -q "^usage: $name " "$output" || { echo "test_scripts: $name --help: no usage" && exit 1; }
  expect 2 "^$name: error: the following arguments are required: " "$script"
  if grep -q -e "--program PROGRAM" "$output"; then
    expect 2 "^$name: error: argument --program: /nowhere: expected a program that can be run" "$script" --program /nowhere
  fi
done
[ "$found" -gt 15 ] || { echo "test_scripts: $found scripts in $1" && exit 1; }

runs="expected a program that can be run"
for script in rank_memory rank_network limits; do
  expect 2 "error: argument program: /nowhere: $runs" "$1/$script.py" /nowhere out.json
done
expect 2 "error: /nowhere/tests/campaign_rnn: $runs" "$1/gradients.py" /nowhere 10 out.json
expect 2 "error: argument count: invalid int value: 'ten'" "$1/gradients.py" /nowhere ten out.json
expect 2 "error: /nowhere/tests/test_recurrent_calls: $runs" "$1/c_sequences.py" 10 out.json /nowhere
expect 2 "error: /nowhere/tests/campaign_backward: $runs" "$1/backward_random.py" /nowhere 10 out.json
expect 2 "error: /nowhere/tests/search_backward: $runs" "$1/backward_search.py" /nowhere 10 10 out.json
expect 2 "error: /nowhere/tests/test_recurrent_forward: $runs" "$1/forward_random.py" /nowhere 10 out.json
expect 2 "^operations.py: /nowhere: No such file or directory" "$1/operations.py" /nowhere
