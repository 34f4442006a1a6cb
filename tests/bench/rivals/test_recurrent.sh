#!/bin/sh
# test_recurrent.sh SOURCE PROGRAM SCRATCH: bench/rivals/recurrent.py in the rounds of `bench rnn` and `bench gru`. Where Python has
# no PyTorch and no JAX, every method is refused by name with the command that installs it; where there are some, their gradients
# agree with the program's. Exits 77 where the second half has nothing to run.
set -eu
source=$1
program=$2
scratch=$3
rm -rf "$scratch"
mkdir -p "$scratch/bench/rivals" "$scratch/none"
cd "$scratch"

fail() {
  echo "test_recurrent: $1"
  exit 1
}

# A Python without the libraries: the copy finds no environment beside it, and modules of these names refuse to be imported.
cp "$source/bench/rivals/recurrent.py" bench/rivals/
for module in numpy torch jax; do
  echo 'raise ImportError("none in this test")' >"none/$module.py"
done
PYTHONPATH=$scratch/none "$program" bench rnn --seq-len 5 --batch 2 --hidden 3 --init default --repeats 1 --threads 1 --json \
  --rivals bench/rivals/recurrent.py >none.json || fail "exit code $? without libraries"
python3 - none.json <<'PYTHON' || fail "rows of missing libraries"
import json, sys
rows = {(r["method"], r["phase"]): r for r in json.load(open(sys.argv[1]))["rows"]}
for method, library in [("pytorch", "PyTorch"), ("jax_scan_1", "JAX"), ("jax_scan_8", "JAX"), ("jax_associative_scan", "JAX")]:
    for phase in ("forward", "backward"):
        words = f"{library} is not installed (none in this test): bench/rivals/setup installs it"
        assert rows[method, phase].get("skipped") == words, (method, phase, rows[method, phase])
assert rows["bp", "backward"]["ok"]
PYTHON

PYTHONPATH=$scratch/none "$program" bench forward --seq-len 50 --hidden 3 --quick --repeats 1 --threads 1 --json \
  --rivals bench/rivals/recurrent.py >none.json || fail "exit code $? without libraries, forward"
python3 - none.json <<'PYTHON' || fail "forward passes of missing libraries"
import json, sys
document = json.load(open(sys.argv[1]))
reasons = {left["method"]: left["reason"] for left in document["left_out"]}
assert reasons["pytorch"] == "PyTorch is not installed (none in this test): bench/rivals/setup installs it", reasons
assert {row["method"] for row in document["rows"]} == {"sequential", "speculative"}
PYTHON

# A JAX without a GPU says so where one is asked for, and its products are exact; the program is asked as the benchmark asks it.
mkdir -p cpu_only/jax
echo 'raise ImportError("none in this test")' >cpu_only/torch.py
echo >cpu_only/numpy.py
echo >cpu_only/jax/numpy.py
cat >cpu_only/jax/__init__.py <<'PYTHON'
import os

__version__ = "0"
settings = {}


class config:
    update = staticmethod(settings.__setitem__)


def devices(kind):
    assert kind == os.environ["JAX_PLATFORMS"] == "cuda" and settings["jax_default_matmul_precision"] == "highest"
    raise RuntimeError("no such platform")
PYTHON
echo '{"ask": "enter", "method": "jax_scan_1"}' |
  PYTHONPATH=$scratch/cpu_only python3 bench/rivals/recurrent.py --device cuda >lines.txt || fail "exit code $?: no GPU for JAX"
tail -n 1 lines.txt | grep -q '"refused": "JAX is not installed (this one has no CUDA): ' ||
  fail "no GPU for JAX: $(tail -n 1 lines.txt)"

# What is installed here.
found=0
while read -r arguments; do
  # shellcheck disable=SC2086
  "$program" bench $arguments --repeats 1 --threads 1 --json --rivals "$source/bench/rivals/recurrent.py" >some.json ||
    fail "exit code $?: bench $arguments"
  python3 - some.json <<'PYTHON' && found=1 || [ $? -eq 77 ] || fail "bench $arguments"
import json, sys
rivals = [r for r in json.load(open(sys.argv[1]))["rows"] if r["method"].startswith(("pytorch", "jax"))]
measured = [r for r in rivals if "skipped" not in r]
for r in rivals:
    reason = r.get("skipped", "")
    assert not reason or "is not installed" in reason or "on a GPU alone" in reason, (r["method"], reason)
document = json.load(open(sys.argv[1]))
if document["bench"] == "step" and measured:  # of PyTorch, and of no other library
    assert {r["method"] for r in measured} == {"pytorch"}, measured
    assert all(r["rival_times"] > 0 for r in document["rows"] if not r["noisy"] and not measured[0]["noisy"]), document["rows"]
    assert "jax_scan_1" in [left["method"] for left in document["left_out"]], document["left_out"]
for r in measured:
    assert r.get("ok", True) and r["residual"] < (30 if "ok" in r else 2e-6) and r["median_s"] > 0, r
sys.exit(0 if measured else 77)
PYTHON
done <<'END2'
rnn --seq-len 5 --batch 2 --hidden 3 --init orthogonal --layers 2 --loss all --nonlinearity relu --dtype f64
gru --seq-len 6 --batch 2 --hidden 3 --init default --layers 2 --input 2
forward --seq-len 300 --hidden 5 --quick
step --model lstm --seq-len 6 --batch 2 --hidden 3 --init orthogonal --layers 2 --loss all
step --model rnn --seq-len 5 --batch 2 --hidden 3 --init default --nonlinearity relu --dtype f64
END2
if [ "$found" -eq 0 ]; then
  echo "test_recurrent: skipped, neither PyTorch nor JAX here: python3-torch of Debian, or bench/rivals/setup"
  exit 77
fi
