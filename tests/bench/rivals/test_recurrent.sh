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
cp "$source/bench/rivals/recurrent.py" "$source/bench/rivals/guest.py" "$source/bench/rivals/cells.py" bench/rivals/
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
tail -n 1 lines.txt | grep -q '"refused": "JAX is not installed (this one has no CUDA: no such platform): ' ||
  fail "no GPU for JAX: $(tail -n 1 lines.txt)"

# What is broken on import, or needs another driver, leaves the same rows as what is missing.
mkdir -p broken
echo 'raise RuntimeError("jaxlib is too old")' >broken/jax.py
echo 'raise AttributeError("of another numpy")' >broken/torch.py
echo >broken/numpy.py
printf '%s\n' '{"ask": "enter", "method": "jax_scan_1"}' '{"ask": "enter", "method": "pytorch"}' |
  PYTHONPATH=$scratch/broken python3 bench/rivals/recurrent.py --device cuda >lines.txt || fail "exit code $?: broken libraries"
for words in 'JAX is not installed (jaxlib is too old)' 'PyTorch is not installed (of another numpy)'; do
  grep -q "\"refused\": \"$words: " lines.txt || fail "a broken library: $(cat lines.txt)"
done

# The first line waits for no import, and a time limit ends the wait for one.
mkdir -p slow
echo 'import time; time.sleep(1)' >slow/torch.py
echo >slow/numpy.py
echo '{"ask": "enter", "method": "torch_scan", "seconds": 0.1}' |
  PYTHONPATH=$scratch/slow python3 "$source/bench/rivals/torch_scan.py" >lines.txt || fail "exit code $?: a slow library"
grep -q '^{"guest": 1, "methods": \["torch_scan", ' lines.txt || fail "no first line: $(cat lines.txt)"
tail -n 1 lines.txt | grep -q '^{"refused": "--time-limit was over before its first pass was"}$' ||
  fail "a slow library: $(cat lines.txt)"

# PyTorch's graphs, with a GPU that is played on the processor: passes come first, on a side stream, and nothing that autograd knows
# of them is left when a capture begins; the graphs are then replayed, two a pass, one a step.
cat >played.py <<'PYTHON'
import argparse, contextlib, gc, sys, types

sys.path.insert(0, sys.argv[1])
import guest
import recurrent

guest.import_torch(argparse.Namespace(threads=1, device="cpu"))
if "PyTorch" in recurrent.MISSING:
    sys.exit(0)
np, torch = recurrent.np, recurrent.torch


class Device(str):  # the processor, which says that it is a GPU
    __eq__ = lambda self, other: other == "cuda"
    __ne__ = lambda self, other: other != "cuda"
    __hash__ = str.__hash__


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    record = lambda self: None
    elapsed_time = lambda self, other: 1.0


class Stream:
    wait_stream = lambda self, other: None


class Graph:
    replayed = 0
    pool = lambda self: (0, 1)

    def replay(self):
        Graph.replayed += 1


default = current = Stream()


@contextlib.contextmanager
def on(stream):
    global current
    before, current = current, stream
    yield
    current = before


@contextlib.contextmanager
def capture(graph, pool=None):
    gc.collect()
    known = [o for o in gc.get_objects() if isinstance(o, torch.Tensor) and o.grad_fn is not None]
    assert pool or not known, [o.shape for o in known]
    assert passes >= 2, "no passes in front of the capture"
    with on(Stream()):
        yield


torch.cuda = types.SimpleNamespace(Event=Event, Stream=Stream, CUDAGraph=Graph, stream=on, graph=capture,
                                   current_stream=lambda: current, synchronize=lambda: None)
adam, passes = torch.optim.Adam, 0
torch.optim.Adam = lambda parameters, lr, capturable: adam(parameters, lr) if capturable else 1 / 0
for kind in (torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM):

    def forward(self, x, plain=kind.forward):
        global passes
        assert current is not default, "a pass on the default stream"
        passes += 1
        return plain(self, x)

    kind.forward = forward
T, B, I, H, C = 5, 2, 1, 3, 4
for model, gates in (("rnn", 1), ("gru", 3), ("lstm", 4)):
    G = gates * H
    shapes = {"weight_ih_l0": (G, I), "weight_hh_l0": (G, H), "bias_ih_l0": (G,), "bias_hh_l0": (G,)}
    weights = {model + "." + name: np.full(shape, 0.1, "float32") for name, shape in shapes.items()}
    point = {"model": model, "nonlinearity": "tanh", "seq_len": T, "batch": B, "input": I, "hidden": H, "layers": 1,
             "weights": weights, "x": np.ones((T, B, I), "float32"), "forward_only": False}
    for forward_only in (False, True):
        passes = Graph.replayed = 0
        made = None
        made = recurrent.Replay(dict(point, seed=np.ones((B, H), "float32"), forward_only=forward_only), Device("cpu"))
        assert len(made.results()) == (1 if forward_only else 5) and Graph.replayed == (2 if forward_only else 3)
    head = {"linear.weight": np.ones((C, H), "float32"), "linear.bias": np.ones(C, "float32")}
    passes = Graph.replayed = 0
    made = None
    made = recurrent.StepReplay(dict(point, seed=np.ones((T, B), "float32"), classes=C, lr=1e-3, weights={**weights, **head}),
                                Device("cpu"))
    assert len(made.results()) == 2 * 6 and Graph.replayed == 1
PYTHON
python3 played.py "$source/bench/rivals" || fail "PyTorch's graphs"

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
if document["bench"] == "step" and measured:  # of what is installed; of JAX by its scans of steps alone
    steps, left = {r["method"] for r in measured}, {left["method"] for left in document["left_out"]}
    assert "pytorch" in steps | left and {f"jax_scan_{unroll}" for unroll in (1, 2, 4, 8)} <= steps | left, (steps, left)
    assert "jax_associative_scan" in left, left
    assert all(r["rival_times"] > 0 for r in document["rows"] if not any(o["noisy"] for o in [r, *measured])), document["rows"]
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
