#!/bin/sh
# test_install.sh SOURCE BUILD WORK CC SHOWN: installs into an empty prefix, builds the examples against it through the CMake
# package and through pkg-config, and runs all, from a prefix that was moved after the installation. Then the examples are linked
# with the shared library in the directory SHOWN, which shows public names alone.
set -eu
source=$1
build=$2
work=$3
cc=$4
shown=$5
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix

fail() {
  echo "test_install: $*"
  exit 1
}
check() { # check PROGRAM: it runs, and every line follows from the one before: F(1) = 1, F(0) = 0, and then 70 steps of Fibonacci
  "$1" >"$work/output" || fail "$1 exited with $?: $(cat "$work/output")"
  awk '
  BEGIN { newer = 1; older = 0 }
  {
    if ($0 != sprintf("F(%d) = %.0f, F(%d) = %.0f", NR, newer, NR - 1, older)) exit bad = 1
    sum = newer + older
    older = newer
    newer = sum
  }
  END { exit bad || NR != 71 }' "$work/output" || fail "$1 printed: $(cat "$work/output")"
}
check_gru() { # check_gru PROGRAM: it runs, and both methods have learnt
  "$1" >"$work/output" || fail "$1 exited with $?: $(cat "$work/output")"
  [ "$(grep -cE '^(BP|the chunked scan): loss .*, accuracy 0\.9' "$work/output")" -eq 2 ] ||
    fail "$1 printed: $(cat "$work/output")"
}
check_ranks() { # check_ranks PROGRAM: it runs, and says that the weights have the same bits
  "$1" >"$work/output" || fail "$1 exited with $?: $(cat "$work/output")"
  grep -q '^weights: the same bits (good)$' "$work/output" || fail "$1 printed: $(cat "$work/output")"
}
check_cell() { # check_cell PROGRAM: it runs, and every method's gradients and training are good
  "$1" >"$work/output" || fail "$1 exited with $?: $(cat "$work/output")"
  for method in bp linear blelloch 'blelloch 2' chunked 'chunked 3' scan; do
    grep -q "^$method  *gradients within .*(good)\$" "$work/output" || fail "$1 printed: $(cat "$work/output")"
  done
}

for file in man/man1/bppsa.1 man/man1/bppsa-train.1 bash-completion/completions/bppsa zsh/site-functions/_bppsa; do
  [ -s "$prefix/share/$file" ] || fail "share/$file is not installed"
done
for file in LICENSE CITATION.cff examples/CMakeLists.txt examples/scan.c examples/gru.c examples/ranks.c examples/cell.c; do
  [ -s "$prefix/share/doc/bppsa/$file" ] || fail "share/doc/bppsa/$file is not installed"
done
if find "$prefix/include" -name '*_internal.h' | grep .; then
  fail "internal headers are installed"
fi

for header in core/files/json.h core/files/file.h distributed/pipeline/chain_costs.h audio/instruments.h core/compute/library.h \
  core/base/text.h; do
  [ -f "$source/$header" ] || fail "$header does not exist, expected a header to look for"
  [ ! -e "$prefix/include/bppsa/$header" ] || fail "$header is installed, expected it to serve the library alone"
done
# What a header says stands by itself: every file of the sources that it names, as FOLDER/NAME, FOLDER/NAME.ENDING or NAME.ENDING,
# is installed.
find "$source" \( -name .git -o -path "$source/build*" \) -prune -o -type f -print | sed "s|^$source/||" >"$work/files"
(cd "$prefix/include/bppsa" && find . -type f) | sed 's|^\./||' >"$work/installed"
names='[A-Za-z_0-9]+(/[A-Za-z_0-9]+)+(\.[a-z]+)?|[A-Za-z_0-9]+\.(c|h|inc|cu|cuh|cc|cpp|md|sh|py|txt|cmake|json)'
(cd "$prefix/include/bppsa" && grep -rnoE "$names" .) >"$work/named" || fail "no header names a file: the search is wrong"
awk '
# A path is known by its last parts, whole or without the ending: a/b/c.h, b/c.h, c.h, a/b/c and b/c.
function learn(known, path) {
  do {
    known[path]
    if (path ~ "/") known[substr(path, 1, length(path) - length(ending))]
  } while (sub("^[^/]*/", "", path))
}
{ match($0, /([.][a-z]+)?$/); ending = substr($0, RSTART) }
FILENAME ~ /files$/ { learn(files, $0) }
FILENAME ~ /installed$/ { learn(installed, $0) }
FILENAME ~ /named$/ {
  split($0, part, ":")
  if (part[3] in files && !(part[3] in installed)) {
    print part[1] ":" part[2] ": names " part[3] ", which is not installed"
    bad = 1
  }
}
END { exit bad }' "$work/files" "$work/installed" "$work/named" || fail "expected headers that name installed files alone"
[ -f "$prefix/include/bppsa/core/base/status.h" ] || fail "core/base/status.h is not installed under include/bppsa"

cmake -S "$source/examples" -B "$work/cmake" "-DCMAKE_C_COMPILER=$cc" "-DCMAKE_PREFIX_PATH=$prefix" >"$work/cmake.log" ||
  fail "$(cat "$work/cmake.log")"
cmake --build "$work/cmake" >>"$work/cmake.log" 2>&1 || fail "$(cat "$work/cmake.log")"
check "$work/cmake/scan"
check_gru "$work/cmake/gru"
check_ranks "$work/cmake/ranks"
check_cell "$work/cmake/cell"

pc=$(find "$prefix" -name bppsa.pc)
[ -n "$pc" ] || fail "no bppsa.pc under $prefix"
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
pkg-config --atleast-version=0.2 bppsa || fail "pkg-config gives version $(pkg-config --modversion bppsa)"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir bppsa)
export LD_LIBRARY_PATH
for example in scan gru ranks cell; do
  # shellcheck disable=SC2046
  "$cc" -std=c17 -Wall -Wextra -Werror "$source/examples/$example.c" -o "$work/$example" $(pkg-config --cflags --libs bppsa) -lm
done
check "$work/scan"
check_gru "$work/gru"
check_ranks "$work/ranks"
if command -v c++ >/dev/null; then # the same sources as C++
  for example in scan gru ranks; do
    # shellcheck disable=SC2046
    c++ -x c++ -std=c++17 "$source/examples/$example.c" -o "$work/$example-cxx" $(pkg-config --cflags --libs bppsa) -lm
  done
  check "$work/scan-cxx"
  check_gru "$work/gru-cxx"
  check_ranks "$work/ranks-cxx"
fi
check_cell "$work/cell"

# The shared library, which shows the public names alone.
mkdir "$work/shared"
for example in scan gru ranks cell; do
  "$cc" -std=c17 "$source/examples/$example.c" -o "$work/shared/$example" -I "$prefix/include/bppsa" -L "$shown" \
    -Wl,-rpath,"$shown" -lbppsa -lm || fail "$example.c does not link with the shared library"
done
check "$work/shared/scan"
check_gru "$work/shared/gru"
check_ranks "$work/shared/ranks"
check_cell "$work/shared/cell"

# The Python package stands on the public interface alone: its C files are compiled with the installed headers, without a warning,
# and linked with the shared library's public names. Then it computes and runs a command.
mkdir -p "$work/extension/python"
cp -R "$source/python/bppsa" "$work/extension/"
cp "$source"/python/*.c "$source"/python/*.h "$work/extension/python/"
extension="$cc -std=c17 -D_POSIX_C_SOURCE=200809L -DBPPSA_PYTHON_LINKED -Wall -Wextra -Werror -fPIC -shared -Wl,-z,defs"
if ! (cd "$work/extension" && $extension -I . -I "$prefix/include/bppsa" python/*.c -o bppsa/libbppsa_python.so -L "$shown" \
  -Wl,-rpath,"$shown" -lbppsa) >"$work/output" 2>&1; then
  fail "the Python package does not build on the public interface: $(cat "$work/output")"
fi
python=/usr/bin/python3
"$python" -c 'import numpy' 2>/dev/null || python=python3
if "$python" -c 'import numpy' 2>/dev/null; then
  (cd "$work/extension" && PYTHONDONTWRITEBYTECODE=1 "$python" -c '
import numpy, bppsa
gradients = bppsa.scan(numpy.full((3, 2, 4, 4), 0.5), None, numpy.ones((2, 4)))
print(bppsa.plan("gru", seq_len=4)["totals"]["critical_steps"], gradients[0, 0, 0], bppsa._native.allocated())') \
    >"$work/output" 2>&1 || fail "the Python package on the installed library: $(cat "$work/output")"
  grep -Eq '^[1-9][0-9]* 8\.0 0$' "$work/output" ||
    fail "the Python package on the installed library printed: $(cat "$work/output")"
fi
# A name that is not public is missed.
printf '%s\n' 'int64_t bppsa_alloc_live_bytes(void);' 'int64_t bppsa_python_more(void) { return bppsa_alloc_live_bytes(); }' \
  >>"$work/extension/python/native.c"
if (cd "$work/extension" && $extension -I . -I "$prefix/include/bppsa" python/*.c -o wrong.so -L "$shown" -lbppsa) \
  >"$work/output" 2>&1; then
  fail "the Python package links with a name that is not public"
fi
grep -q bppsa_alloc_live_bytes "$work/output" || fail "expected bppsa_alloc_live_bytes to be missed: $(cat "$work/output")"

# A factor that is wrong by its last multiplication must not pass.
sed 's/\.d = by_c \* f,/.d = by_c,/' "$source/examples/cell.c" >"$work/wrong.c"
cmp -s "$source/examples/cell.c" "$work/wrong.c" && fail "no factor in $source/examples/cell.c to spoil"
# shellcheck disable=SC2046
"$cc" -std=c17 "$work/wrong.c" -o "$work/wrong" $(pkg-config --cflags --libs bppsa) -lm
if "$work/wrong" >"$work/output" || ! grep -q '^bp  *gradients .*(BAD)$' "$work/output"; then
  fail "a wrong cell passed: $(cat "$work/output")"
fi

if [ -x "$prefix/bin/bppsa" ]; then
  "$prefix/bin/bppsa" --version >"$work/output" || fail "the installed program exited with $?"
  grep -q "$(pkg-config --modversion bppsa)" "$work/output" || fail "bppsa --version printed: $(cat "$work/output")"
fi
grep -q "^version: $(pkg-config --modversion bppsa)\$" "$source/CITATION.cff" ||
  fail "CITATION.cff has another version than $(pkg-config --modversion bppsa)"
grep -q "version = {$(pkg-config --modversion bppsa)}" "$source/docs/library.md" ||
  fail "the BibTeX entry of docs/library.md has another version than $(pkg-config --modversion bppsa)"

# The module of MPI, where it was built, is found from the installed place.
if [ -f "$build/bppsa_mpi.so" ]; then
  cat >"$work/transports.c" <<'EOF'
#include <stdio.h>

#include "bppsa_ranks.h"

int main(void) {
  bppsa_comm_transport_report reports[BPPSA_COMM_TRANSPORT_COUNT];
  bppsa_comm_transports(reports);
  for (int i = 0; i < BPPSA_COMM_TRANSPORT_COUNT; ++i) {
    printf("%s: %s: %s\n", reports[i].name, reports[i].found ? "found" : "missing", reports[i].detail);
  }
  return 0;
}
EOF
  mkdir -p "$prefix/bin"
  # shellcheck disable=SC2046
  "$cc" -std=c17 -Wall -Wextra -Werror "$work/transports.c" -o "$prefix/bin/transports" $(pkg-config --cflags --libs bppsa) -lm
  "$prefix/bin/transports" >"$work/output" || fail "transports exited with $?"
  grep -q '^mpi: found: Open MPI' "$work/output" || fail "the installed module is not found: $(cat "$work/output")"
fi
