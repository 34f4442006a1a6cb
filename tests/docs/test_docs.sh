#!/bin/sh
# test_docs.sh ROOT PROGRAM DIRECTORY: runs commands of README.md and docs/*.md that stand in a block marked sh. The blocks of a
# page run in their order, in a directory of the page's own, with the program as build/cpu/bppsa and on the PATH; the first command
# that fails ends the page. Blocks marked "sh by-hand" need a GPU, root, another library or minutes, and are not run. The shell
# reads all blocks, these too, so that none has an error of syntax. At full length (BPPSA_TEST_LENGTH=full) all pages run, otherwise
# those of one group of four, which BPPSA_TEST_SEED chooses; `group` below says which page is in which.
# First it checks that the pages that a reader begins with have no other code than such blocks, that the files exist to which these
# pages and CONTRIBUTING.md link, and the files that they name between backticks with a folder of the repository (X, FOLDER and
# INNER stand for any name). docs/audio.md is passed over, and named, where the program has no audio.
set -eu
root=$1
program=$2
directory=$3
rm -rf "$directory"
mkdir -p "$directory/bin"
export XDG_CACHE_HOME="$directory/cache" # what the program keeps of measurements
# The pages' python3 needs numpy; if the first python3 of the PATH lacks it, Debian's is used.
if ! python3 -c 'import numpy' 2>/dev/null; then
  ln -s /usr/bin/python3 "$directory/bin/python3"
fi
failures=0

# names PAGE: the links of a page, then what stands between backticks and has a slash in it, one a line behind its kind.
names() {
  awk '/^```/ { inside = !inside; next } !inside' "$1" >"$directory/prose"
  grep -o ']([^)# ]*' "$directory/prose" | sed 's/^](//; /^$/d; /:\/\//d; s/^/link /' || true
  grep -o '`[A-Za-z_][A-Za-z_]*/[^` ]*`' "$directory/prose" | tr -d '`' | sed 's/^/path /' || true
}
checked=0
for page in "$root"/README.md "$root"/CONTRIBUTING.md "$root"/docs/*.md; do
  names "$page" >"$directory/names"
  while read -r kind name; do
    place=$root
    case "$kind ${name%%/*} $name" in
      link*) place=$(dirname "$page") ;;
      "path build "*) continue ;;
      *.c | *.h | *.cu | *.cuh | *.inc | *.cmake) ;;
      *) [ -d "$root/${name%%/*}" ] || continue ;; # a shape, an alternative, a path of the user's
    esac
    checked=$((checked + 1))
    pattern=$(echo "$name" | sed -E 's/FOLDER|INNER|X/*/g')
    # shellcheck disable=SC2086
    if ! (cd "$place" && ls -d $pattern) >/dev/null 2>&1; then
      echo "$page: $name does not exist"
      failures=$((failures + 1))
    fi
  done <"$directory/names"
done
# Every option of the build has its row.
for option in $(grep -oE '^(option|set)\(B(PPSA|UILD)_[A-Z_]+' "$root/CMakeLists.txt" | sed 's/.*(//' | sort -u); do
  grep -q "^| \`$option\`" "$root/docs/library.md" || {
    echo "docs/library.md: no row for the option $option"
    failures=$((failures + 1))
  }
done
# What the first pages show in C or Python is a file that one of their blocks of commands writes, and so it is run.
if grep -nE '^```[a-z]' "$root"/README.md "$root"/docs/start-*.md | grep -vE ':```sh( by-hand)?$'; then
  echo "expected no code on the first pages but in blocks marked sh, which this test runs"
  failures=$((failures + 1))
fi
if [ "$checked" -eq 0 ]; then
  echo "no page names a file: the search is wrong"
  failures=$((failures + 1))
fi
# group PAGE: 0 to 3. Every group takes about as long as the others.
group() {
  case "$1" in
  schedules | running-schedules) echo 0 ;;
  README | forward | sparse | data | start-*) echo 1 ;;
  oracle | cells | python | library | methods | networks) echo 2 ;;
  *) echo 3 ;;
  esac
}
turn=$((${BPPSA_TEST_SEED:-1} % 4))
pages=0
passed_over=0
for page in "$root"/README.md "$root"/docs/*.md; do
  name=$(basename "$page" .md)
  mkdir -p "$directory/$name/build"
  ln -s "$(dirname "$program")" "$directory/$name/build/cpu"
  ln -s "$root/examples" "$directory/$name/examples"
  ln -s "$root/bench" "$directory/$name/bench"
  awk '/^```/ { running = !inside && $0 ~ /^```sh( by-hand)?$/; inside = !inside; next } running' "$page" \
    >"$directory/$name/blocks"
  if ! sh -n "$directory/$name/blocks"; then
    echo "$page: the shell does not understand its commands"
    failures=$((failures + 1))
  fi
  awk '/^```/ { running = !inside && $0 == "```sh"; inside = !inside; next } running' "$page" >"$directory/$name/commands"
  if [ ! -s "$directory/$name/commands" ]; then
    continue
  fi
  if [ "$name" = audio ] && ! "$program" doctor | grep -q '^audio  *built'; then
    echo "$page: passed over, the program was built without audio"
    continue
  fi
  if [ "${BPPSA_TEST_LENGTH:-}" != full ] && [ "$(group "$name")" -ne "$turn" ]; then
    passed_over=$((passed_over + 1))
    continue
  fi
  pages=$((pages + 1))
  path=$directory/bin:$(dirname "$program"):$PATH
  if ! (cd "$directory/$name" && PATH=$path sh -e -x commands) >"$directory/$name/output" 2>&1; then
    echo "$page: a command failed; the page's output ends with:"
    tail -n 12 "$directory/$name/output"
    failures=$((failures + 1))
  fi
done
echo "$checked names of files, the commands of $pages pages (BPPSA_TEST_SEED=${BPPSA_TEST_SEED:-1} left out $passed_over)," \
  "$failures failures"
[ "$pages" -gt 0 ] && [ "$failures" -eq 0 ]
