#!/bin/sh
# test_headers.sh ROOT GENERATED STANDARD COMPILER [FLAG ...]: every public header, as named in bppsa.h, compiles alone and twice in
# a row, without a warning.
set -eu
root=$1
generated=$2
standard=$3
shift 3
case $standard in
c++*) language=c++ ;;
*) language=c ;;
esac
failures=0
headers=0
cd "$root"
for header in bppsa.h $(sed -n 's|^#include "\([a-z]*/.*\)"$|\1|p' bppsa.h); do
  headers=$((headers + 1))
  if ! printf '#include "%s"\n#include "%s"\nint bppsa_header_test;\n' "$header" "$header" |
    "$@" -x "$language" "-std=$standard" -Wall -Wextra -Wpedantic -Werror -I . -I "$generated" -fsyntax-only -; then
    echo "$header does not compile alone as $standard"
    failures=$((failures + 1))
  fi
  case $header in
  *_internal.h)
    echo "bppsa.h includes $header, which is internal"
    failures=$((failures + 1))
    ;;
  esac
done
echo "$headers headers, $failures failures"
[ "$failures" -eq 0 ] && [ "$headers" -gt 10 ]
