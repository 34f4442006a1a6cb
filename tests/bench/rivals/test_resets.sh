#!/bin/sh
# test_resets.sh SOURCE PACKAGE SCRATCH: bench/rivals/resets.py with few steps. Every method that the first python3 with PyTorch can
# run agrees with the loop in float64; JAX and torchrl, where they are missing, have rows that say so; a wrong point is refused.
# Exits 77 where no python3 has PyTorch.
set -eu
source=$1
package=$2
scratch=$3
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"
python=""
for candidate in python3 /usr/bin/python3; do
  if [ -z "$python" ] && "$candidate" -c 'import torch' 2>/dev/null; then
    python=$candidate
  fi
done
if [ -z "$python" ]; then
  echo "test_resets: skipped, no python3 has PyTorch (package python3-torch)"
  exit 77
fi
export PYTHONPATH="$package" PYTHONDONTWRITEBYTECODE=1

fail() {
  echo "test_resets: $1"
  exit 1
}

"$python" "$source/bench/rivals/resets.py" --points lstm_2_512_128_3 --seq-len 12 --seconds 0 --rounds 2 \
  --out results >table.txt || fail "exit code $?: $(cat table.txt)"
"$python" - results <<'PYTHON' || fail "documents"
import json, os, sys
assert os.listdir(sys.argv[1]) == ["lstm_2_512_128_3.json"]
for name in os.listdir(sys.argv[1]):
    with open(os.path.join(sys.argv[1], name), encoding="utf-8") as file:
        document = json.load(file)
    rows = {row["method"]: row for row in document["rows"]}
    assert len(rows) == 14 and document["segments"] >= document["batch"], rows
    for method, row in rows.items():
        if "skipped" in row:
            assert method.startswith(("bppsa_jax", "jax", "torchrl")), row
            assert row["skipped"].startswith(("JAX is not installed", "needs torchrl", "torchrl refuses")), row
        else:
            assert row["ok"] and 0 < row["residual"] < 30 and 0 < row["min_s"] <= row["median_s"] <= row["max_s"], row
PYTHON
grep -q "bppsa .*1.00 times bppsa's" table.txt || fail "table: $(cat table.txt)"

# The documents that are kept make the table: a row a point, and the median of every column.
"$python" "$source/bench/rivals/resets.py" --table "$source/bench/results/resets" >kept.txt || fail "exit code $?: --table"
[ "$(grep -c '^| GRU \|^| LSTM ' kept.txt)" -eq 10 ] || fail "--table: $(cat kept.txt)"
tail -n 1 kept.txt | grep -q '^| median | | | | [0-9.]* | ' || fail "--table has no median: $(tail -n 1 kept.txt)"
if "$python" "$source/bench/rivals/resets.py" --table results >lacks.txt 2>&1; then
  fail "--table of a folder that lacks points"
fi
grep -q "error: results/gru_1_128_128_3.json: " lacks.txt || fail "--table of a folder that lacks points: $(cat lacks.txt)"

# A wrong point is refused; a method whose result is wrong is named, and the exit code says it.
cat >wrong.py <<'PYTHON'
import runpy, sys

import bppsa.torch

forward = bppsa.torch.GRU.forward
bppsa.torch.GRU.forward = lambda layer, x, hx=None, resets=None: forward(layer, x, hx)  # without the mask
script = sys.argv[1]
for words, expected in ((["--points", "gru_5"], 2),
                        (["--points", "gru_4_128_128_10", "--methods", "bppsa", "--seq-len", "12", "--seconds", "0"], 1)):
    sys.argv = ["resets.py", *words]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        assert end.code == expected, end.code
PYTHON
PYTHONPATH="$package:$source/bench/rivals" "$python" wrong.py "$source/bench/rivals/resets.py" >wrong.txt 2>&1 ||
  fail "wrong runs: $(cat wrong.txt)"
grep -q "points gru_5: no such point, expected some of gru_1_128_128_3, " wrong.txt || fail "a wrong point: $(cat wrong.txt)"
grep -q "bppsa .*, WRONG" wrong.txt || fail "a wrong result: $(cat wrong.txt)"
