#!/bin/sh
# test_interface.sh SOURCE INTERFACE LIBRARY WORK: the public interface, as the build has made it (cmake/interface.txt). Prints
# every public name with the beginning of its documentation. Fails where a name has none, where a comment of an installed header
# names something that is not public, where bppsa.h has more than 120 functions, and where the shared library shows other symbols.
# Then small headers show that each of these is found.
set -eu
source=$1
interface=$2
library=$3
work=$4
most=120
rm -rf "$work"
mkdir -p "$work"

# judge DIRECTORY: says what is wrong with an interface; 0: nothing.
judge() {
  awk -F '\t' -v most="$most" '
$5 == "" && $3 != "value" { print $2 ": " $4 " has no documentation, expected a comment above it or beside it"; bad = 1 }
$1 == "bppsa.h" && ($3 == "function" || $3 == "inline") { ++functions }
END {
  if (functions > most) {
    print "bppsa.h has " functions " functions, expected at most " most
    bad = 1
  }
  exit bad
}' "$1/names.txt" || return 1
  awk -F '\t' '{ print $1 ": a comment names " $2 ", which is not public" } END { exit NR > 0 }' "$1/strays.txt"
}
symbols() { # symbols LIBRARY: what it shows
  nm -D --defined-only "$1" | awk '$2 ~ /^[TDBRVWu]$/ { print $3 }' | LC_ALL=C sort
}
expected() { # expected DIRECTORY: what it is to show
  awk -F '\t' '$3 == "function" || $3 == "constant" { print $4 }' "$1/names.txt" | LC_ALL=C sort
}

awk -F '\t' '{ printf "%-13s %-9s %-40s %s\n", $1, $3, $4, substr($5, 1, 70) }' "$interface/names.txt"
status=0
judge "$interface" || status=1
expected "$interface" >"$work/expected"
[ -s "$work/expected" ] || {
  echo "no public functions in $interface/names.txt"
  status=1
}
symbols "$library" >"$work/shown"
diff "$work/expected" "$work/shown" >"$work/difference" || {
  echo "$library shows other symbols than the public ones (< expected, > shown):"
  cat "$work/difference"
  status=1
}

# A header with a public function and types, a private function, and a macro.
mkdir -p "$work/tree/folder"
cat >"$work/tree/folder/part.h" <<'END'
/* A part. */
#ifndef PART_H
#define PART_H

#include <stdint.h>

#include "folder/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is public. */
int bppsa_part_open(const bppsa_part *part, /* one */
                    int64_t count);
void bppsa_part_peek(const bppsa_secret *secret); /* is private */

/* ---- private ---- */

/* Only the library calls it. */
void bppsa_part_hidden(void);

#ifdef __cplusplus
}
#endif
#endif
END
cat >"$work/tree/folder/types.h" <<'END'
/* Types. */
#ifndef TYPES_H
#define TYPES_H

#include <stdbool.h>

#define BPPSA_PART_SIZE 3 /* numbers of a part */
#define BPPSA_PART_OTHER 4
typedef enum { BPPSA_PART_A, BPPSA_PART_B } bppsa_part_kind; /* "it's" a kind */
/* A part. */
typedef struct {
  bppsa_part_kind kind;
  double numbers[BPPSA_PART_SIZE];
} bppsa_part;

typedef struct {
  int x;
} bppsa_secret;

#endif
END
# make NAME ..: an interface of the header's names
make() {
  printf 'bppsa.h: All.\n  # Parts\n  folder/part.h\n    %s\n' "$*" >"$work/tree/interface.txt"
  rm -rf "$work/made"
  mkdir -p "$work/made/include"
  (cd "$work/tree" && LC_ALL=C awk -f "$source/cmake/interface.awk" -v out="$work/made" interface.txt)
}
expect() { # expect WHAT COMMAND ..: a step of the test
  what=$1
  shift
  "$@" >"$work/step" 2>&1 || {
    echo "expected $what; found: $(cat "$work/step")"
    status=1
  }
}
refuse() {
  ! "$@"
}
has() { # has FILE TEXT
  grep -qF -- "$2" "$work/made/include/$1" || {
    cat "$work/made/include/$1"
    return 1
  }
}
expect "an interface of one function" make bppsa_part_open
expect "no complaint" judge "$work/made"
expect "the public function" has folder/part.h 'int bppsa_part_open(const bppsa_part *part, /* one */'
expect "no private function" refuse has folder/part.h bppsa_part_peek
expect "no comment of a private function" refuse has folder/part.h 'Only the library'
expect "no heading without declarations" refuse has folder/part.h private
expect "a type that the function uses" has folder/types.h '} bppsa_part;'
expect "a macro that the type uses" has folder/types.h BPPSA_PART_SIZE
expect "no macro that nothing uses" refuse has folder/types.h BPPSA_PART_OTHER
expect "no type that nothing uses" refuse has folder/types.h bppsa_secret
expect "the function in the map" grep -q '^    bppsa_part_open;$' "$work/made/bppsa.map"
expect "a name that is not declared to be refused" refuse make bppsa_part_shut
expect "a name that is listed twice to be refused" refuse make bppsa_part_open bppsa_part_open
make bppsa_part_open bppsa_part_peek
expect "a type without documentation to be found" refuse judge "$work/made"
sed 's/Is public/Is public, as bppsa_part_hidden is not/' "$work/tree/folder/part.h" >"$work/tree/changed"
mv "$work/tree/changed" "$work/tree/folder/part.h"
make bppsa_part_open
expect "a comment's private name to be found" refuse judge "$work/made"
most=0
expect "too many functions to be found" refuse judge "$work/made"
exit "$status"
