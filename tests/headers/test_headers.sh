#!/bin/sh
# test_headers.sh ROOT GENERATED INTERFACE STANDARD COMPILER [FLAG ...]: each header that tests/headers/checked.h names, and each
# header that is installed, compiles alone and twice in a row, without a warning; the installed ones without the FLAGs, which find
# other libraries, and without the sources.
set -eu
root=$1
generated=$2
interface=$3
standard=$4
compiler=$5
shift 5
case $standard in
c++*) language=c++ ;;
*) language=c ;;
esac
failures=0
headers=0
check() { # check HEADER FLAG ..
  header=$1
  shift
  headers=$((headers + 1))
  if ! printf '#include "%s"\n#include "%s"\nint bppsa_header_test;\n' "$header" "$header" |
    "$compiler" -x "$language" "-std=$standard" -Wall -Wextra -Wpedantic -Werror "$@" -I "$generated" -fsyntax-only -; then
    echo "$header does not compile alone as $standard"
    failures=$((failures + 1))
  fi
  case $header in
  *_internal.h)
    echo "$header is internal, expected headers that other folders may include"
    failures=$((failures + 1))
    ;;
  esac
}
cd "$root"
for header in $(sed -n 's|^#include "\([a-z]*/.*\)"$|\1|p' tests/headers/checked.h); do
  check "$header" "$@" -I .
done
cd "$interface/include"
installed=$headers
for header in $(find . -name '*.h' | sed 's|^\./||' | LC_ALL=C sort); do
  check "$header" -I .
done
installed=$((headers - installed))
echo "$headers headers, $installed of them installed, $failures failures"
[ "$failures" -eq 0 ] && [ "$headers" -gt "$installed" ] && [ "$installed" -gt 10 ]
