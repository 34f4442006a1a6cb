#!/bin/sh
# test_first_training.sh README PROGRAM DIRECTORY: what README's first training on own data ends with. Its commands, from the one
# that writes data.py on, must leave weights that tell at least 85 % of the samples apart, where guessing tells half of them.
set -eu
readme=$1
program=$2
directory=$3
rm -rf "$directory"
mkdir -p "$directory/build/cpu"
ln -s "$program" "$directory/build/cpu/bppsa"
cd "$directory"
if ! python3 -c 'import numpy' 2>/dev/null; then # of Debian's python3
  mkdir bin
  ln -s /usr/bin/python3 bin/python3
  PATH=$directory/bin:$PATH
fi
awk '/^```/ { running = !inside && $0 == "```sh"; inside = !inside; next }
  running && /^cat > data.py/ { found = 1 }
  running && found' "$readme" >commands
grep -q "bppsa train .*--data npy" commands
sh -e commands >output
accuracy=$(awk '$1 == "accuracy" { print $2 }' output | tail -n 1)
echo "accuracy ${accuracy:-none}"
awk -v found="${accuracy:-0}" 'BEGIN { exit !(found >= 0.85) }'
