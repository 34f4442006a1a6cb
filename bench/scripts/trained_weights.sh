#!/bin/sh
# bench/scripts/trained_weights.sh PROGRAM DIRECTORY: trains the networks whose weights bench/gpu.sh measures: RNN, GRU and LSTM,
# H = 20, on bitstreams of 1000 steps, in float32. DIRECTORY gets of each
#   rnn_500.safetensors, rnn_2000.safetensors   after so many iterations, with the loss on the last step
#   rnn_all.safetensors                         after 1000, with the loss on every step, whose label is the class of the sample
# Each network is tried on 512 samples that it has not seen, and the script prints its loss and accuracy. One that has learned
# nothing guesses one of ten classes: its accuracy is 0.1, its loss 2.3. Weights with less than 0.15 are refused, and the script
# exits 1. The same program makes the same bytes on the same processor. A minute of one core.
set -eu
if [ $# -ne 2 ] || [ ! -x "$1" ]; then
  echo "trained_weights.sh: '$*', expected PROGRAM DIRECTORY"
  exit 2
fi
program=$1
directory=$2
mkdir -p "$directory"
made=$directory/made.safetensors
trap 'rm -f "$made"' EXIT

# make NAME MODEL LOSS ITERATIONS
make() {
  "$program" train "$2" --loss "$3" --seq-len 1000 --batch 16 --hidden 20 --iterations "$4" --threads 1 --seed 0 \
    --save-weights "$made" >/dev/null
  tried=$("$program" eval "$2" --loss "$3" --seq-len 1000 --samples 512 --seed 1 --threads 1 --weights "$made" --json)
  accuracy=$(printf '%s' "$tried" | sed -n 's/.*"accuracy": \([^,}]*\).*/\1/p')
  echo "$1: $tried"
  if ! awk -v accuracy="$accuracy" 'BEGIN { exit !(accuracy + 0 >= 0.15) }'; then
    echo "trained_weights.sh: $1: accuracy '$accuracy', expected at least 0.15: it has not learned"
    exit 1
  fi
  mv "$made" "$directory/$1.safetensors"
}

for model in rnn gru lstm; do
  make "${model}_500" "$model" last 500
  make "${model}_2000" "$model" last 2000
  make "${model}_all" "$model" all 1000
done
