#!/bin/sh
# test_results_file.sh SOURCE SCRATCH: bench/scripts/results_file.py writes a row a line and keeps what a document says; every file
# of bench/results is laid out like this, and all of them together stay small enough to be read in a change.
set -eu
source=$1
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"
layout="$source/bench/scripts/results_file.py"
fail() {
  echo "test_results_file: $*"
  cat out.txt 2>/dev/null
  exit 1
}

cat >one.json <<'EOF'
{"bench": "x", "rows": [{"a": 1.23456789e-5, "n": 12345678, "none": null, "name": "µ", "cut": [1, 2]},
 {"a": 0.1, "runs": [{"b": 1}, {"b": 2}]}], "date": "2026"}
EOF
cat >expected.json <<'EOF'
{"bench": "x", "date": "2026",
 "rows": [
  {"a": 1.23457e-05, "n": 12345678, "none": null, "name": "µ", "cut": [1, 2]},
  {"a": 0.1,
   "runs": [
    {"b": 1},
    {"b": 2}
   ]}
 ]}
EOF
code=0
python3 "$layout" --check one.json >out.txt || code=$?
[ "$code" -eq 1 ] || fail "--check: exit code $code, expected 1"
grep -q "^one.json: laid out otherwise" out.txt || fail "--check does not name the file"
python3 "$layout" one.json >out.txt || fail "exit code $?"
cmp one.json expected.json || fail "another layout"
python3 "$layout" --check one.json >out.txt || fail "its own layout is not accepted"

cd "$source"
find bench/results -name '*.json' -exec python3 bench/scripts/results_file.py --check {} + >"$scratch/out.txt" || {
  cd "$scratch"
  fail "bench/results"
}
lines=$(find bench/results -type f -exec cat {} + | wc -l)
[ "$lines" -le 8000 ] || fail "bench/results: $lines lines, expected at most 8000"
echo "test_results_file: passed"
