#!/bin/sh
# check_readers.sh ROOT: every source file that reads a file or parses text has a fuzzer, which names it in its first comment, or
# a line with a reason in tests/fuzz/readers.txt: "FILE|reason". A line for a file that reads nothing, or that a fuzzer names,
# fails too.
set -eu
cd "${1:?expected the root of the sources}"
calls='bppsa_(file_read|file_reader_open|json_load|json_parse|json_parse_at|safetensors_load|npy_load|npy_load_reals|npy_parse'
calls="$calls|read_real|csr_load|wav_read|directory_list)|strtoll?|strtod|sscanf|fopen|fdopendir|opendir"
reading=$(grep -rlE --include='*.c' --include='*.inc' "(^|[^a-z_])($calls)\(" -- */ | grep -v -e '^tests/' -e '^build/' | sort)
fuzzed=$(for target in tests/fuzz/fuzz_*.c; do sed -n '1,/\*\//p' "$target" | grep -oE '[a-z]+/[a-z0-9_/]+\.c'; done | sort -u)
excused=$(grep -v '^#' tests/fuzz/readers.txt | sed 's/|.*//' | sort)
failed=0
complain() {
  echo "check_readers: $*"
  failed=1
}
for file in $reading; do
  printf '%s\n%s\n' "$fuzzed" "$excused" | grep -qx "$file" ||
    complain "$file reads, expected a fuzzer in tests/fuzz that names it, or a line with a reason in tests/fuzz/readers.txt"
done
for file in $fuzzed; do
  [ -f "$file" ] || complain "a fuzzer names $file, which does not exist"
done
for file in $excused; do
  printf '%s\n' "$reading" | grep -qx "$file" || complain "tests/fuzz/readers.txt: $file reads nothing, expected no line for it"
  ! printf '%s\n' "$fuzzed" | grep -qx "$file" || complain "tests/fuzz/readers.txt: $file has a fuzzer, expected no line for it"
done
bad=$(grep -v '^#' tests/fuzz/readers.txt | grep -cvE '^[^|]+\|.+$' || true)
[ "$bad" -eq 0 ] || complain "tests/fuzz/readers.txt: $bad lines without a reason, expected FILE|reason"
exit $failed
