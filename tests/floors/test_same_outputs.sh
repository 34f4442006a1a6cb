#!/bin/sh
# test_same_outputs.sh SOURCE BUILD SCRATCH: tools/same_outputs finds a build the same as itself, and names what another one prints
# otherwise or no longer writes.
set -eu
source=$1
build=$2
scratch=$3
rm -rf "$scratch"
mkdir -p "$scratch/other"
cd "$scratch"
fail() {
  echo "test_same_outputs: $*"
  cat out.txt
  exit 1
}

"$source/tools/same_outputs" "$build" "$build" \
  --filter 'schedule gpipe|grad gru.*last.*f32' >out.txt 2>&1 || fail "itself: exit code $?"
grep -q ' commands, 0 of which both refuse; 0 with other outputs$' out.txt || fail "itself: another summary"

cat >other/bppsa <<EOF
#!/bin/sh
case "\$*" in
*csv*) exec "$build/bppsa" schedule gpipe ;;
*" --json"*) exec "$build/bppsa" schedule gpipe --json --stages 5 ;;
esac
exec "$build/bppsa" "\$@"
EOF
chmod +x other/bppsa
code=0
"$source/tools/same_outputs" "$build" other --filter 'schedule gpipe' >out.txt 2>&1 || code=$?
[ "$code" -eq 1 ] || fail "another build: exit code $code, expected 1"
grep -q '^bppsa schedule gpipe --csv s.csv$' out.txt || fail "a file that is not written is not named"
grep -q '^    output: .*, other ' out.txt || fail "another output is not shown"
grep -q '^5 commands, 0 of which both refuse; 2 with other outputs$' out.txt || fail "another build: another summary"
echo "test_same_outputs: passed"
