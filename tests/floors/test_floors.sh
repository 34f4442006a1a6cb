#!/bin/sh
# tools/check_floors finds every kind of violation, each planted alone in a small tree, and passes the tree without them.
set -eu
check=$1 # the absolute path of tools/check_floors
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

plant() { # plant FILE: writes standard input to the file of a fresh tree
  rm -rf "$tree"
  mkdir -p "$tree/core/base" "$tree/core/files" "$tree/core/compute"
  mkdir -p "$tree/scan" "$tree/rnn" "$tree/gru" "$tree/train" "$tree/cli" "$tree/bench" "$tree/tests/cli" "$tree/tools"
  printf '%s\n' '# comment' 'core 0' 'core/base 1' 'core/files 2' 'core/compute 2' 'scan 2' 'rnn 4' 'gru 4' 'train 5' \
    'cli 11' 'bench 11' 'tests 12' >"$tree/tools/floors"
  printf '%s\n' '#include <stdio.h>' '#include "core/base/status.h"' '/* printf(1) and "free(2)" */' \
    'void f(void) { snprintf(0, 0, "exit(1)"); table->free(0); table.abort(1); bppsa_free(0); }' >"$tree/core/base/good.c"
  printf '%s\n' '#include <stdlib.h>' 'void *g(void) { return malloc(1); }' >"$tree/core/base/alloc.c"
  printf '%s\n' '#include "scan/scan.h"' 'int main(void) { printf("x"); exit(1); }' >"$tree/cli/good.c"
  printf '%s\n' '#include "cli/cli.h"' >"$tree/tests/cli/test_good.c"
  printf '%s\n' '#ifdef BPPSA_WITH_CUDA' '#endif' >"$tree/core/compute/device.c"
  mkdir -p "$tree/$(dirname "$1")"
  cat >"$tree/$1"
}
expect() { # expect STATUS TEXT
  status=0
  output=$("$check" "$tree" 2>&1) || status=$?
  if [ "$status" -ne "$1" ] || ! printf '%s\n' "$output" | grep -qF -- "$2"; then
    echo "expected exit $1 and \"$2\", got exit $status and:"
    printf '%s\n' "$output"
    failures=$((failures + 1))
  fi
}

plant core/nothing.h </dev/null && expect 0 ""
printf '%0133d\n' 0 | plant tests/cli/long.cc && expect 1 'tests/cli/long.cc:1: a line of 133 characters'
printf '\n#include "scan/scan.h"\n' | plant core/up.c && expect 1 'core/up.c:2: includes "scan/scan.h" upwards'
printf '#define EACH_REAL "train/loss.inc"\n' | plant rnn/up.h && expect 1 'rnn/up.h:1: includes "train/loss.inc" upwards'
printf '#  include <train/loss.h>\n' | plant rnn/up.h && expect 1 'rnn/up.h:1: includes "train/loss.h" upwards'
printf '#include "gru/gru.h"\n' | plant rnn/side.c && expect 1 'rnn/side.c:1: includes "gru/gru.h" sideways'
printf '#include "tests/support/x.h"\n' | plant cli/up.c && expect 1 'cli/up.c:1: includes "tests/support/x.h" upwards'
printf '#include "bench/x.h"\n' | plant cli/side.c && expect 1 'cli/side.c:1: includes "bench/x.h" sideways'
printf '#include "core/files/x.h"\n' | plant core/base/up.c &&
  expect 1 'core/base/up.c:1: includes "core/files/x.h" upwards, from floor 1 of its folder to floor 2'
printf '#include "core/base/x.h"\n' | plant core/up.c &&
  expect 1 'core/up.c:1: includes "core/base/x.h" upwards, from floor 0 of its folder to floor 1'
printf '#include "core/compute/x.h"\n' | plant core/files/side.c &&
  expect 1 'core/files/side.c:1: includes "core/compute/x.h" sideways, of another room on its floor'
printf '#include "core/base/x.h"\n#include "core/files/y.h"\n' | plant core/files/down.c && expect 0 ""
printf '#include "core/compute/x.h"\n' | plant scan/use.c && expect 0 ""
printf '#include "scan.h"\n' | plant scan/bare.c && expect 1 'scan/bare.c:1: includes "scan.h" without its folder'
printf '#include "../core/x.h"\n' | plant scan/dots.c && expect 1 'scan/dots.c:1: includes "../core/x.h"'
printf 'int x;\n#if BPPSA_WITH_CUDA\n#endif\n' | plant scan/cuda.c && expect 1 'scan/cuda.c:2: BPPSA_WITH_* outside'
printf '/* a\n b */ void f(void) { printf("x"); }\n' | plant scan/print.c && expect 1 'scan/print.c:2: the library calls printf'
printf 'void f(void) { fprintf (stderr, "x"); }\n' | plant scan/print.inc && expect 1 'scan/print.inc:1: the library calls fprintf'
printf 'void f(void) { if (1) exit(1); }\n' | plant rnn/exit.cu && expect 1 'rnn/exit.cu:1: the library calls exit'
printf 'void f(void) { abort(); }\n' | plant core/abort.c && expect 1 'core/abort.c:1: the library calls abort'
printf 'void *f(void) { return 1 ? malloc(1) : 0; }\n' | plant scan/m.c && expect 1 'scan/m.c:1: the library calls malloc'
printf 'void *f(void) { return calloc(1, 1); }\n' | plant scan/c.c && expect 1 'scan/c.c:1: the library calls calloc'
printf 'void f(void) { g(x), free(x); }\n' | plant scan/f.c && expect 1 'scan/f.c:1: the library calls free'
printf 'int f(void) { return t->read(0) + rename("a", "b"); }\n' | plant core/r.c && expect 1 'core/r.c:1: the library calls rename'
printf 'int f(void) { return open("a", 0); }\n' | plant core/base/io.c && expect 0 ""
decimal='a decimal number in the host'
printf 'void f(void) { for (;;) snprintf(t, 9, "%%g", x); }\n' | plant scan/g.c && expect 1 "scan/g.c:1: $decimal"
printf 'void f(void) { snprintf(t, 9, "%%%%g"); }\n' | plant scan/g.c && expect 0 ""
printf 'void f(void) {\n  snprintf(t, 9, "%%.17g", x);\n}\n' | plant scan/g.c && expect 1 "scan/g.c:2: $decimal"
printf 'void f(void) {\n  (void)snprintf(t, 9,\n "a %%d, %%5.1f s", 1,\n x);\n}\n' | plant cli/g.c && expect 1 "cli/g.c:2: $decimal"
printf 'void f(void) {\n  fprintf(file, "%%+e", x);\n}\n' | plant bench/g.c && expect 1 "bench/g.c:2: $decimal"
printf 'void f(void) {\n  snprintf(t, 9, "%%.0f %%ld", x);\n  bppsa_print(t, 9, "%%g", x);\n}\n' | plant cli/g.c && expect 0 ""
printf 'void f(void) {\n  snprintf(t, 9, "%%g", x);\n}\n' | plant tests/cli/g.c && expect 0 ""
awk 'BEGIN { printf "// %130s\n", "x" }' | plant scan/wide.h && expect 1 'scan/wide.h:1: a line of 133 characters'
awk 'BEGIN { printf "// %129s\n", "x" }' | plant scan/wide.h && expect 0 ""
body=$(awk 'BEGIN { while (n++ < 67) print "  g();" }')
printf 'int x;\nvoid f(int a,\n       int b) {\n%s\n}\n' "$body" | plant scan/f.cuh && expect 0 ""
printf 'int x;\nvoid f(int a,\n       int b) {\n  g();\n%s\n}\n' "$body" | plant scan/f.cuh &&
  expect 1 'scan/f.cuh:72: ends a function of 71 lines, expected at most 70'
wide=$(awk 'BEGIN { printf "%0133d", 0 }')
for file in bench/run.sh bench/rows.py core/simd.cmake core/CMakeLists.txt Makefile tools/build docs/page.md README.md; do
  printf '\n%s\n' "$wide" | plant "$file" && expect 1 "$file:2: a line of 133 characters, expected at most 132"
  printf '%s\n' "${wide#0}" | plant "$file" && expect 0 ""
done
printf '```\n%s\n```\n| %s |\n' "$wide" "$wide" | plant docs/page.md && expect 0 ""
printf '```\nx\n```\n%s\n' "$wide" | plant docs/page.md && expect 1 'docs/page.md:4: a line of 133 characters'
printf '```\nx\n' | plant docs/a.md && printf '%s\n' "$wide" >"$tree/docs/b.md" && expect 1 'docs/b.md:1: a line of 133 characters'
printf '#include "scan/circle.h"\n' | plant scan/circle.h && expect 1 'circle: scan/circle.h -> scan/circle.h'
printf '#include "core/good.h"\n#include <scan/b.h>\n' | plant scan/a.h && printf '#include "scan/c.h"\n' >"$tree/scan/b.h" &&
  printf '#include "scan/a.h"\n' >"$tree/scan/c.h" && printf '#include "scan/a.h"\n' >"$tree/scan/a.c" &&
  expect 1 'circle: scan/a.h -> scan/b.h -> scan/c.h -> scan/a.h'
printf '#include "scan/b.h"\n' | plant scan/a.h && printf '#include "scan/c.h"\n' >"$tree/scan/b.h" &&
  printf '#include "core/x.h"\n' >"$tree/scan/c.h" && expect 0 ""
# Modules: a.h does not include b.h, but a.c does, and b.h includes a.h.
printf '#include "scan/b.h"\n' | plant scan/a.c && printf '#include "scan/a.h"\n' >"$tree/scan/b.h" &&
  echo "int x;" >"$tree/scan/a.h" &&
  expect 1 'scan/a: modules include each other in a circle: scan/a -> scan/b -> scan/a' &&
  expect 1 'scan/a.c includes scan/b.h' && expect 1 'scan/b.h includes scan/a.h'
for suffix in _cpu.c _cuda.cu _nocuda.c _cudnn.c _nocudnn.c _internal.h _kernels.cuh .inc; do
  printf '#include "scan/b.h"\n' | plant "scan/a$suffix" && printf '#include "scan/c.h"\n' >"$tree/scan/b.c" &&
    printf '#include "core/x.h"\n' >"$tree/scan/b.h" && printf '#include "scan/a.h"\n' >"$tree/scan/c.h" &&
    echo "int x;" >"$tree/scan/a.h" &&
    expect 1 'modules include each other in a circle: scan/a -> scan/b -> scan/c -> scan/a'
done
printf '#include "scan/a_internal.h"\n' | plant scan/a_kernels.cuh && printf '#include "scan/a.h"\n' >"$tree/scan/a_internal.h" &&
  printf '#include "scan/a_kernels.cuh"\n' >"$tree/scan/a_cuda.cu" && echo "int x;" >"$tree/scan/a.h" && expect 0 "" # of one module
printf '#include "scan/b.h"\n' | plant scan/a.c && printf '#include "scan/a_table.h"\n' >"$tree/scan/b.h" &&
  echo "int x;" >"$tree/scan/a_table.h" && expect 0 "" # another module, whatever its name begins with
plant core/nothing.h </dev/null && echo 'oracle 8' >>"$tree/tools/floors" && expect 1 'tools/floors: oracle: no such folder'
printf 'int x;\n' | plant new/x.c && expect 1 'new/x.c:1: the folder new has no floor'
plant core/nothing.h </dev/null && rm "$tree/tools/floors" && expect 1 'tools/floors is missing'
rm -rf "$tree" && mkdir "$tree" && expect 1 'no source files'

if [ "$failures" -ne 0 ]; then
  echo "$failures checks failed"
  exit 1
fi
