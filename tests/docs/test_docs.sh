#!/bin/sh
# test_docs.sh ROOT PROGRAM DIRECTORY: runs every command of README.md and docs/*.md that stands in a block marked sh. The blocks of a page run in
# their order, in a directory of the page's own, with the program as build/cpu/bppsa and on the PATH; the first command that fails ends the page. Blocks
# marked "sh by-hand" need a GPU, root, another library or minutes, and are not run.
set -eu
root=$1
program=$2
directory=$3
rm -rf "$directory"
mkdir -p "$directory/bin"
# The pages' python3 needs numpy; if the first python3 of the PATH lacks it, Debian's is used.
if ! python3 -c 'import numpy' 2>/dev/null; then
  ln -s /usr/bin/python3 "$directory/bin/python3"
fi
failures=0
pages=0
for page in "$root"/README.md "$root"/docs/*.md; do
  name=$(basename "$page" .md)
  mkdir -p "$directory/$name/build/cpu"
  ln -s "$program" "$directory/$name/build/cpu/bppsa"
  awk '/^```/ { running = !inside && $0 == "```sh"; inside = !inside; next } running' "$page" >"$directory/$name/commands"
  if [ ! -s "$directory/$name/commands" ]; then
    continue
  fi
  pages=$((pages + 1))
  if ! (cd "$directory/$name" && PATH="$directory/bin:$(dirname "$program"):$PATH" sh -e -x commands) >"$directory/$name/output" 2>&1; then
    echo "$page: a command failed; the page's output ends with:"
    tail -n 12 "$directory/$name/output"
    failures=$((failures + 1))
  fi
done
echo "the commands of $pages pages, $failures of which fail"
[ "$pages" -gt 0 ] && [ "$failures" -eq 0 ]
