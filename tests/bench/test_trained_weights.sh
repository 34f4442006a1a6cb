#!/bin/sh
# test_trained_weights.sh SOURCE SCRATCH PROGRAM: the networks of bench/weights have learned, bench/gpu_points.txt measures all of
# them and no others, each with the loss that it was trained with, and bench/scripts/trained_weights.sh, which makes them, refuses
# one that has learned nothing.
set -eu
export LC_ALL=C
source=$1
scratch=$2
program=$3
rm -rf "$scratch"
mkdir -p "$scratch/made"
cd "$scratch"
check() { # check WHAT COMMAND ...
  what=$1
  shift
  "$@" >/dev/null || { echo "test_trained_weights: $what" && exit 1; }
}

# The script, with a program that only pretends: its networks guess as well as the first line of the file `accuracy` says.
cat >pretends <<'END'
#!/bin/sh
echo "$*" >>"${0%/*}/calls"
case $1 in
train)
  while [ "$1" != --save-weights ]; do shift; done
  echo weights >"$2"
  ;;
eval) echo "{\"loss\": 2.25, \"accuracy\": $(cat "${0%/*}/accuracy"), \"samples\": 512}" ;;
esac
END
chmod +x pretends
echo 0.1503 >accuracy
"$source/bench/scripts/trained_weights.sh" "$PWD/pretends" made >out.txt
check "what a network has learned is not said" grep -q '^gru_all: {"loss": 2.25, "accuracy": 0.1503, "samples": 512}$' out.txt
check "no network has a loss on every step" grep -q '^train lstm --loss all .*--iterations 1000 ' calls
ls made >names.txt
ls "$source/bench/weights" >shipped.txt
cmp shipped.txt names.txt || check "the script does not make what bench/weights has" false
for accuracy in 0.1497 9.9e-2 null; do
  echo "$accuracy" >accuracy
  rm -r made
  code=0
  "$source/bench/scripts/trained_weights.sh" "$PWD/pretends" made >out.txt || code=$?
  check "an accuracy of $accuracy is accepted: exit code $code" [ "$code" -eq 1 ]
  check "it is not named" \
    grep -q "^trained_weights.sh: rnn_500: accuracy '$accuracy', expected at least 0.15: it has not learned\$" out.txt
  check "a network that has learned nothing is left behind" [ -z "$(ls made)" ]
done
code=0
"$source/bench/scripts/trained_weights.sh" "$PWD/nothing" made >out.txt || code=$?
check "a program that does not exist: exit code $code" [ "$code" -eq 2 ]

# What is shipped: small, better than guessing one of ten, and measured.
check "bench/weights has more than a MiB" [ "$(cat "$source"/bench/weights/* | wc -c)" -le 1048576 ]
while read -r file; do
  name=${file%.safetensors}
  loss=last
  [ "${name#*_}" != all ] || loss=all
  "$program" eval "${name%%_*}" --loss "$loss" --samples 128 --seed 2 --seq-len 1000 --threads 1 --json \
    --weights "$source/bench/weights/$file" >tried.json
  check "$file has not learned: $(cat tried.json)" \
    awk '{ sub(/.*"accuracy": /, ""); exit !($0 + 0 > 0.15) }' tried.json
  check "no step of $file is measured" grep -q "^E .* bench step --model ${name%%_*} .*@weights/$file --loss $loss " \
    "$source/bench/gpu_points.txt"
done <names.txt
grep -o '@weights/[^ ]*' "$source/bench/gpu_points.txt" | sort -u | sed 's|@weights/||' | cmp - names.txt ||
  check "bench/gpu_points.txt names other weights" false
echo "test_trained_weights: fine"
