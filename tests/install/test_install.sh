#!/bin/sh
# test_install.sh SOURCE BUILD WORK CC: installs into an empty prefix, builds the example against it through the CMake package
# and through pkg-config, and runs both, from a prefix that was moved after the installation.
set -eu
source=$1
build=$2
work=$3
cc=$4
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix

fail() {
  echo "test_install: $*"
  exit 1
}
check() { # check PROGRAM: it runs and says that scan and recurrence agree
  "$1" >"$work/output" || fail "$1 exited with $?: $(cat "$work/output")"
  grep -q '^21 Jacobians: 7 steps on the critical path$' "$work/output" || fail "$1 printed: $(cat "$work/output")"
  grep -q '^largest difference from the sequential recurrence: .*(good)$' "$work/output" || fail "$1 printed: $(cat "$work/output")"
}

if find "$prefix/include" -name '*_internal.h' | grep .; then
  fail "internal headers are installed"
fi

cmake -S "$source/examples" -B "$work/cmake" "-DCMAKE_C_COMPILER=$cc" "-DCMAKE_PREFIX_PATH=$prefix" >"$work/cmake.log" ||
  fail "$(cat "$work/cmake.log")"
cmake --build "$work/cmake" >>"$work/cmake.log" 2>&1 || fail "$(cat "$work/cmake.log")"
check "$work/cmake/scan"

pc=$(find "$prefix" -name bppsa.pc)
[ -n "$pc" ] || fail "no bppsa.pc under $prefix"
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
pkg-config --atleast-version=0.1 bppsa || fail "pkg-config gives version $(pkg-config --modversion bppsa)"
# shellcheck disable=SC2046
"$cc" -std=c17 "$source/examples/scan.c" -o "$work/scan" $(pkg-config --cflags --libs bppsa) -lm
LD_LIBRARY_PATH=$(pkg-config --variable=libdir bppsa) check "$work/scan"

if [ -x "$prefix/bin/bppsa" ]; then
  "$prefix/bin/bppsa" --version >"$work/output" || fail "the installed program exited with $?"
  grep -q "$(pkg-config --modversion bppsa)" "$work/output" || fail "bppsa --version printed: $(cat "$work/output")"
fi
