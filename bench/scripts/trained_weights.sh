#!/bin/sh
# bench/scripts/trained_weights.sh PROGRAM DIRECTORY: trains the networks whose weights bench/gpu.sh measures, H = 20, on bitstreams
# of 1000 steps with the loss on the last one, for 2000 iterations: DIRECTORY/rnn_2000.safetensors and so on. A minute on two cores.
set -eu
if [ $# -ne 2 ] || [ ! -x "$1" ]; then
  echo "trained_weights.sh: '$*', expected PROGRAM DIRECTORY"
  exit 2
fi
mkdir -p "$2"
for model in rnn gru lstm; do
  "$1" train "$model" --seq-len 1000 --batch 16 --hidden 20 --iterations 2000 --threads 1 \
    --save-weights "$2/${model}_2000.safetensors"
done
