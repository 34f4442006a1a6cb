#!/bin/sh
# test_gpu_table.sh SOURCE SCRATCH: bench/scripts/gpu_table.py makes one table of several runs: the latest row of a shape, no ratio
# where it would mislead, marks on rows older than the kernels; and the pages have the table of the committed results.
set -eu
source=$1
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch/root/bench/scripts" "$scratch/root/scan"
cd "$scratch"
cp "$source/bench/scripts/gpu_table.py" root/bench/scripts/
table=root/bench/scripts/gpu_table.py
expect() { # expect WHAT PATTERN FILE
  grep -q -e "$2" "$3" || { echo "test_gpu_table: $1" && cat "$3" && exit 1; }
}
fails() { # fails CODE PATTERN ARGUMENTS ..
  code=0
  expected=$1
  words=$2
  shift 2
  python3 "$table" "$@" >out.txt 2>&1 || code=$?
  [ "$code" -eq "$expected" ] || { echo "test_gpu_table: $*: exit code $code" && cat out.txt && exit 1; }
  expect "$*: not said" "$words" out.txt
}

# A repository whose kernels changed in its second commit. No .cu file: the build looks for those in all folders.
git_() { git -C root -c user.name=test -c user.email=test@localhost -c commit.gpgsign=false "$@"; }
git_ init -q
touch root/scan/x_kernels.cuh
git_ add -A
git_ commit -q -m first
old=$(git_ rev-parse --short=12 HEAD)
echo changed >root/scan/x_kernels.cuh
git_ commit -q -a -m second
echo 'no kernel' >root/scan/x.c
git_ add -A
git_ commit -q -m third
new=$(git_ rev-parse --short=12 HEAD)

# row T INIT METHOD PHASE SECONDS [MORE MEMBERS]
row() {
  printf '{"seq_len": %s, "batch": 16, "hidden": 20, "input": 1, "layers": 1, "dtype": "f32", "loss_on": "last", ' "$1"
  printf '"init": "%s", "method": "%s", "phase": "%s", "median_s": %s, ' "$2" "$3" "$4" "$5"
  printf '"min_s": 1e-6, "ok": true, "residual": 0.5, "memory_bytes": 1048576'
  printf '%s}' "${6:+, $6}"
}
# point T INIT STEP [MORE MEMBERS OF THE RIVAL'S BACKWARD ROW]: own step 3e-5, the fastest rival's STEP
point() {
  row "$1" "$2" forward_graph forward 1e-5 '"path": 7' && printf ', '
  row "$1" "$2" bp backward 9e-5 '"forward_s": 1e-5' && printf ', '
  row "$1" "$2" auto_graph backward 2e-5 '"forward_s": 1e-5, "forward_min_s": 2e-6, "predicted_s": 1.5e-5' && printf ', '
  row "$1" "$2" cudnn_tf32 backward 1e-9 '"forward_s": 1e-9, "rival": true' && printf ', '
  row "$1" "$2" cudnn_persist_static_small_h_bf16_graph backward 1e-9 '"forward_s": 1e-9, "rival": true' && printf ', '
  row "$1" "$2" cudnn_slow backward null '"forward_s": null, "rival": true, "qualifying": 1e-9' && printf ', '
  row "$1" "$2" cudnn_fast backward "$3" "\"forward_s\": 0, \"rival\": true${4:+, $4}"
}
document() { # document COMMIT DATE ROWS
  printf '{"build": "b", "driver": "580", "point": "p", "code": 0, '
  printf '"bench": "rnn", "commit": "%s", "date": "%s", "rows": [%s]}\n' "$1" "$2" "$3"
}
mkdir one two
document "$old-dirty" 2026-11-26T10:00:00Z "$(point 1000 default 6e-5), $(point 10 default 6e-5)" >one/points.jsonl
{
  document "$new" 2026-12-01T10:00:00Z "$(point 1000 default 9e-5), $(point 1000 orthogonal 9e-5 '"noisy": true')"
  echo '{"unfinished": true, "point": "q", "code": 124}'
  away=$(row 100 default cudnn_best backward null '"skipped": "--time-limit was over"')
  document "$new" 2026-12-01T10:00:01Z "$(point 100 default 9e-5), $away"
} >two/points.jsonl
tar -C two -cf two/results.tar points.jsonl
python3 "$table" two/results.tar one/points.jsonl >out.txt
[ "$(grep -c '^| RNN ' out.txt)" -eq 4 ] || { echo "test_gpu_table: expected four rows" && cat out.txt && exit 1; }
own='default | 10.0 µs (1.00 µs) | 20.0 µs (1.00 µs) | 15.0 µs | 30.0 µs (3.00 µs)'
expect "the latest row of a shape, with its ratio" \
  "^| RNN | 1000 | .* | $own | cudnn_fast | 90.0 µs | 3.0 | 0.5 | 7 | 1.0 MiB | $new | 580 | 2026-12-01 |\$" out.txt
expect "an older row is not marked" "^| RNN | 10 | .* | 2.0 | .* | $old† | 580 | 2026-11-26 |\$" out.txt
expect "what the mark means" '^† before the last change of a kernel.$' out.txt
expect "a noisy rival has a ratio" 'orthogonal | .* | ~90.0 µs |  | 0.5 |' out.txt
expect "a rival that had no time is not said" '| RNN | 100 | .* | cudnn_fast (not all ran) | 90.0 µs |  | 0.5 |' out.txt

printf '%s\n' before '<!-- gpu_table T 10 100 -->' nothing '<!-- end -->' after >page.md
fails 1 'the table of page.md is not that of the results' one/points.jsonl --check page.md
python3 "$table" one/points.jsonl two/results.tar --update page.md
[ "$(grep -c '^| RNN ' page.md)" -eq 2 ] || { echo "test_gpu_table: a page has other lengths" && cat page.md && exit 1; }
expect "the page lost what stands around" '^after$' page.md
sed -i '/^|/s/†//' page.md # which is known where there is git
python3 "$table" one/points.jsonl two/results.tar --check page.md
echo 'no table' >page.md
fails 2 'page.md: no table, expected the lines' one/points.jsonl --update page.md
expect "a page without a table was changed" '^no table$' page.md
echo '{"rows": ' >bad.jsonl
fails 2 'bad.jsonl: line 1: ' bad.jsonl
echo '{"bench": "scan", "rows": []}' >bad.jsonl
fails 2 'bad.jsonl: no rows, expected documents' bad.jsonl
fails 2 'none.jsonl' none.jsonl

cd "$source"
# shellcheck disable=SC2046
set -- $(find bench/results/h200 -name '*.json' -o -name 'points*.jsonl' | sort)
python3 bench/scripts/gpu_table.py "$@" --check docs/gpu.md README.md
echo "test_gpu_table: fine"
