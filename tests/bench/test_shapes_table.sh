#!/bin/sh
# test_shapes_table.sh SOURCE SCRATCH: bench/scripts/shapes_table.py writes the rows of a record into pages, all of them or those in
# which another library is faster, and refuses what is no record; and the pages of
# docs/ have the tables of the committed record.
set -eu
source=$1
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"
table="$source/bench/scripts/shapes_table.py"
runs() { # runs CODE PATTERN ARGUMENTS ..
  code=0
  expected=$1
  words=$2
  shift 2
  python3 "$table" "$@" >out.txt 2>&1 || code=$?
  if [ "$code" -ne "$expected" ] || { [ -n "$words" ] && ! grep -q -e "$words" out.txt; }; then
    echo "test_shapes_table: $*: exit code $code, expected $expected and '$words'" && cat out.txt && exit 1
  fi
}
row() { # row CELL BATCH OVER_TORCH OVER_JAX MORE
  printf '{"cell": "%s", "seq_len": 9, "batch": %s, "hidden": 7, "input": 3, "layers": 2, "dtype": "f32", "bppsa_s": 0.0123,
    "over_torch": %s, "over_jax": %s, "of_peak": 0.5, "of_blas": 0.75%s}' "$@"
}
printf '{"bench": "trained_shapes", "rows": [%s, %s, %s]}' "$(row gru 4 1.5 2 ', "of_bandwidth": 0.25')" \
  "$(row lstm 64 0.84 2 '')" "$(row rnn 64 2 0.5 '')" >record.json

runs 0 '^| 2 × GRU | 9 | 4 | 7 | 3 | f32 | 12.3 | 1.50 | 2.00 | 50 % | 75 % | 25 % |$' record.json
[ "$(wc -l <out.txt)" -eq 5 ] || { echo "test_shapes_table: expected five lines" && cat out.txt && exit 1; }
printf '%s\n' before '<!-- shapes_table slower -->' nothing '<!-- end -->' between '<!-- shapes_table all -->' '<!-- end -->' \
  >page.md
runs 1 'a table of page.md is not that of record.json' record.json --check page.md
runs 0 '' record.json --update page.md
runs 0 '' record.json --check page.md
[ "$(grep -c '^| 2 × GRU' page.md)$(grep -c '^| 2 × LSTM' page.md)$(grep -c '^| 2 × RNN .* 75 % |  |$' page.md)" = 122 ] ||
  { echo "test_shapes_table: rows are missing" && cat page.md && exit 1; }
sed -i 's/0.84/0.85/' page.md
runs 1 'a table of page.md is not that' record.json --check page.md

runs 2 'missing.json' missing.json
echo '{"bench": "rnn", "rows": [1]}' >other.json
runs 2 'other.json: no rows, expected a document of trained_shapes.py' other.json
echo '{"bench": "trained_shapes", "rows": [{"cell": "rnn"}]}' >short.json
runs 2 "short.json: a row without 'layers'" short.json
echo 'no marks' >plain.md
runs 2 'plain.md: no table, expected the lines' record.json --update plain.md
printf '%s\n' '<!-- shapes_table some -->' '<!-- end -->' >word.md
runs 2 'a table some, expected one of all, f32, f64, slower' record.json --update word.md

# The committed record, once there is one.
record="$source/bench/results/trained_shapes_cpu.json"
[ ! -e "$record" ] || runs 0 '' "$record" --check "$source/docs/python.md" "$source/docs/measuring.md"
