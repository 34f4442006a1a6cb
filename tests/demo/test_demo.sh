#!/bin/sh
# test_demo.sh BPPSA_DEMO DIRECTORY: the demonstration names the fastest method exactly where no timing that it compares is noisy.
set -eu
mkdir -p "$2"
"$1" "$2" >"$2/text"
# The methods are those of the data; linear is BP and is not compared.
methods=$(awk -F, 'NR > 1 && !seen[$1]++ { print $1 }' "$2/figure7.csv" | wc -l)
# The fifth column is the median of a whole iteration. The mark of a long number touches the number in front of it.
noisy=$(awk -v methods="$methods" '/^Milliseconds/ { on = 1 } /products in one/ { on = 0 } { gsub(/~/, " ~") }
             on && /^  / && NF == 6 && $1 != "method" && $1 != "linear" { ++rows; noisy += $5 ~ /^~/ }
             END { print (rows == methods - 1 && methods > 2 ? noisy + 0 : "no table") }' "$2/text")
named=$(grep -c '^  Fastest here: ' "$2/text" || true)
unnamed=$(grep -c '^  No winner is named, because a timing is noisy' "$2/text" || true)
case "$noisy $named $unnamed" in
0\ 1\ 0 | [1-9]\ 0\ 1) ;;
*)
  echo "noisy timings: $noisy, lines that name a winner: $named, lines that name none: $unnamed"
  cat "$2/text"
  exit 1
  ;;
esac
if grep -q '^  Fastest here: linear' "$2/text" || ! grep -q '^  Linear is BP under another name' "$2/text"; then
  echo "linear is BP under another name, expected the text to say so"
  cat "$2/text"
  exit 1
fi
if [ "$noisy" -gt 0 ]; then grep -q '^  ~ noisy: ' "$2/text"; fi
[ "$(wc -l <"$2/figure7.csv")" -eq $((methods * 15 + 1)) ]
