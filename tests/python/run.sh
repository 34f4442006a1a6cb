#!/bin/sh
# run.sh PACKAGE FILE [SANITIZER]: runs a test of the Python package, which lies in PACKAGE, with the first python3 that has numpy;
# skipped (77) where none has. SANITIZER: the libraries, with colons between them, that have to be loaded before Python. At full
# length (BPPSA_TEST_LENGTH=full) tests of bppsa.jax run in the environment of bench/rivals/setup, if it has been made.
set -eu
package=$1
file=$2
python=""
rivals=""
if [ "${BPPSA_TEST_LENGTH:-}" = full ] && expr "$(basename "$file")" : test_jax >/dev/null; then
  rivals=$(dirname "$file")/../../build/rivals/bin/python
fi
for candidate in $rivals python3 /usr/bin/python3; do
  if [ -z "$python" ] && "$candidate" -c 'import numpy' 2>/dev/null; then
    python=$candidate
  fi
done
if [ -z "$python" ]; then
  echo "$(basename "$file"): skipped, no python3 has numpy (package python3-numpy)"
  exit 77
fi
if [ -n "${3:-}" ]; then
  LD_PRELOAD=$3
  export LD_PRELOAD
fi
PYTHONPATH=$package PYTHONDONTWRITEBYTECODE=1 exec "$python" "$file"
