#!/bin/sh
# test_packages.sh SOURCE PROGRAM SCRATCH: the rivals that need packages which are seldom there (bench/rivals/torch_scan.py,
# torchrl_triton.py, flashrnn_cuda.py, jax_rnn.py), and libraries.py, which serves all from one process. Without the packages every
# method is refused by name. torchrl's and FlashRNN's kernels, which run on GPUs alone, and a JAX for forward passes are played by
# modules of their names: what comes back agrees with the program's. PyTorch's scan and JAX's reference do where they are installed.
# Exits 77 where Python has no PyTorch.
set -eu
source=$1
program=$2
scratch=$3
rivals=$source/bench/rivals
rm -rf "$scratch"
mkdir -p "$scratch/none" "$scratch/played/torchrl/modules/tensordict_module" "$scratch/extensions"
cd "$scratch"

fail() {
  echo "test_packages: $1"
  exit 1
}

# ---- nothing is installed ----

for module in numpy torch jax; do
  echo 'raise ImportError("none in this test")' >"none/$module.py"
done
for name in torch_scan torchrl_triton flashrnn_cuda jax_rnn; do
  library=PyTorch
  [ "$name" != jax_rnn ] || library=JAX
  method=${name%_cuda}
  echo '{"ask": "enter", "method": "'$method'"}' | PYTHONPATH=none python3 "$rivals/$name.py" >lines.txt ||
    fail "exit code $? without libraries: $name"
  grep -q "\"refused\": \"$library is not installed (none in this test): bench/rivals/setup installs it\"" lines.txt ||
    fail "$name without libraries: $(tail -n 1 lines.txt)"
done
# All of them in one process: each method once, no more than the program takes, and each refused by the name of its library.
cat >each.py <<'PYTHON'
import json, re, subprocess, sys
rivals, most = sys.argv[1], int(re.search("BPPSA_GUEST_METHODS = (\\d+)", open(sys.argv[2]).read())[1])
talk = subprocess.Popen([rivals + "/libraries.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
methods = json.loads(talk.stdout.readline())["methods"]
alone = []
for name in ("recurrent", "torch_scan", "torchrl_triton", "jax_rnn", "flashrnn_cuda"):
    first = subprocess.run([f"{rivals}/{name}.py"], input="", stdout=subprocess.PIPE, check=True, text=True)
    alone += json.loads(first.stdout)["methods"]
assert sorted(methods) == sorted(alone) and len(set(methods)) == len(methods) <= most, (methods, alone)
assert methods[-1] == "torch_scan_inductor", methods  # which compiles for longest
for method in methods:
    talk.stdin.write(json.dumps({"ask": "enter", "method": method}) + "\n")
    talk.stdin.flush()
    library = "JAX" if method.startswith("jax") else "PyTorch"
    refused = json.loads(talk.stdout.readline())["refused"]
    assert refused == f"{library} is not installed (none in this test): bench/rivals/setup installs it", (method, refused)
talk.stdin.close()
assert talk.wait() == 0
PYTHON
PYTHONPATH=none python3 each.py "$rivals" "$source/bench/rivals/guest.h" || fail "libraries.py without libraries"
python3 -c 'import torch' 2>/dev/null || {
  echo "test_packages: skipped, no PyTorch here: python3-torch of Debian, or bench/rivals/setup"
  exit 77
}

# ---- PyTorch alone ----

# check NAME ARGUMENTS ..: the rows of a rival that are not left out are right, and the reasons of the others, by method, are JSON
check() {
  rival=$1
  shift
  "$program" bench "$@" --repeats 1 --threads 1 --json --rivals "$rival" >rows.json || fail "exit code $?: bench $* with $rival"
  python3 - rows.json <<'PYTHON' >reasons.txt || fail "bench $* with $rival"
import json, sys
guests = ("torch_scan", "torchrl", "flashrnn", "jax_", "pytorch")
for row in json.load(open(sys.argv[1]))["rows"]:
    if row["method"].startswith(guests):
        assert "skipped" in row or (row["ok"] and row["residual"] < 30 and row["median_s"] > 0), row
        if row["phase"] == "backward":
            print(row["method"], row.get("skipped", "measured"))
PYTHON
}
says() { grep -q "$1" reasons.txt || fail "expected '$1', found: $(cat reasons.txt)"; }

small="--seq-len 6 --batch 2 --hidden 3 --init default"
# shellcheck disable=SC2086
check "$rivals/torch_scan.py" gru $small --layers 2 --input 2
if python3 -c 'from torch._higher_order_ops.scan import scan' 2>/dev/null; then
  says '^torch_scan measured$'
  says '^torch_scan_aot_eager measured$'
else
  says '^torch_scan left out: needs PyTorch >= 2.15'
fi

# ---- packages that are played: as documented, and no more ----

cat >played/torchrl/modules/tensordict_module/_rnn_triton.py <<'PYTHON'
import torch


def steps(kind, x, states, weights, is_init):
    assert not is_init.any() and is_init.dtype is torch.bool and all((s == 0).all() for s in states)
    assert x.shape[:2] == is_init.shape and all(s.shape[:2] == x.shape[:2] for s in states)
    first = [s[:, :1].transpose(0, 1).contiguous() for s in states]
    function = {"gru": torch._VF.gru, "lstm": torch._VF.lstm}[kind]
    return function(x, first if kind == "lstm" else first[0], list(weights), True, 1, 0.0, True, False, True)


def gru_triton(x, hidden, w_ih, w_hh, b_ih, b_hh, is_init, *, input_precision):
    assert input_precision in ("ieee", "tf32x3")
    return steps("gru", x, [hidden], (w_ih, w_hh, b_ih, b_hh), is_init)


def lstm_triton(x, hidden, cell, w_ih, w_hh, b_ih, b_hh, is_init, *, input_precision):
    out, h, c = steps("lstm", x, [hidden, cell], (w_ih, w_hh, b_ih, b_hh), is_init)
    return out, None, h, c
PYTHON
touch played/torchrl/__init__.py played/torchrl/modules/__init__.py played/torchrl/modules/tensordict_module/__init__.py
cat >played/flashrnn.py <<'PYTHON'
import torch


def flashrnn(Wx, R, b, states=None, function="lstm", config=None, backend="cuda_fused", dtype="bfloat16"):
    """Wx [B,T,G,N,D], R [G,N,D,D] of the rows that are computed, b [G,N,D] to states [S,B,T,N,D]."""
    assert dtype == "float32" and backend in ("cuda", "cuda_fused") and states is None
    B, T, _, N, D = Wx.shape
    h = c = Wx.new_zeros(B, N, D)
    every = []
    for t in range(T):
        x, y = Wx[:, t], torch.einsum("gndp,bnp->bgnd", R, h)
        if function == "gru":  # the recurrent gates are n, r, z, those of the input r, z, n
            r, z = torch.sigmoid(x[:, 0] + y[:, 1] + b[1]), torch.sigmoid(x[:, 1] + y[:, 2] + b[2])
            h = z * h + (1 - z) * torch.tanh(x[:, 2] + b[3] + r * (y[:, 0] + b[0]))
        elif function == "lstm":
            i, f, g, o = (x + y + b).unbind(1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        else:
            assert function == "elman"
            h = torch.tanh((x + y + b)[:, 0])
        every.append(torch.stack((h, c)) if function == "lstm" else h[None])
    return torch.stack(every, 2), every[-1].unsqueeze(2)
PYTHON
# Some methods of libraries.py, which lets its kernels run on a processor. PyTorch's scan is a loop here.
cat >some.py <<PYTHON
#!/usr/bin/env python3
import os, sys, types
sys.path.insert(0, "$rivals")
import flashrnn_cuda, libraries, recurrent, torchrl_triton

flashrnn_cuda.Flash.devices = torchrl_triton.Triton.devices = ["cpu"]


def scan(step, state, inputs):
    states = []
    for x in inputs:
        state, new = step(state, x)
        states.append(new)
    return state, recurrent.torch.stack(states)


sys.modules["torch._higher_order_ops.scan"] = types.SimpleNamespace(scan=scan)
recurrent.serve("some", {name: libraries.METHODS[name] for name in os.environ["SOME"].split()}, "torch")
PYTHON
chmod +x some.py
export SOME="torchrl_triton torchrl_triton_tf32x3 flashrnn_fused flashrnn torch_scan"
# shellcheck disable=SC2086
check ./some.py gru $small
says "^torchrl_triton left out: needs torchrl (No module named 'torchrl')$"
says "^flashrnn left out: needs flashrnn (No module named 'flashrnn')$"
export PYTHONPATH="$scratch/played"
# shellcheck disable=SC2086
check "$rivals/torchrl_triton.py" gru $small
says "^torchrl_triton left out: torchrl's kernels run on a GPU alone$"
export TORCH_EXTENSIONS_DIR="$scratch/extensions"
# shellcheck disable=SC2086
check ./some.py gru $small
says "^torchrl_triton measured$"
says "^flashrnn left out: needs FlashRNN's kernels, compiled beforehand, below TORCH_EXTENSIONS_DIR$"
mkdir extensions/flashrnn && touch extensions/flashrnn/kernel.so
# shellcheck disable=SC2086
check ./some.py gru $small --layers 2 --input 2
says "^torchrl_triton_tf32x3 measured$"
says "^flashrnn measured$"
says "^flashrnn_fused left out: FlashRNN has no fused kernel of a GRU$"
# shellcheck disable=SC2086
check ./some.py lstm $small --layers 2 --loss all
says "^torchrl_triton measured$"
says "^flashrnn_fused measured$"
says "^torch_scan measured$"
# shellcheck disable=SC2086
check ./some.py rnn $small
says "^torchrl_triton left out: torchrl's kernels are of GRU and LSTM in float32$"
says "^flashrnn_fused measured$"

# ---- two libraries in one process ----

# A cell runs with JAX's functions, which are played by NumPy and have no backward pass, after it has run with PyTorch's.
mkdir -p numpy_jax/jax
cat >numpy_jax/jax/__init__.py <<'PYTHON'
import types
import numpy

config = types.SimpleNamespace(update=lambda *setting: None)
devices = lambda kind: [kind]
jit = block_until_ready = lambda it: it
jvp = None
nn = types.SimpleNamespace(sigmoid=lambda x: 1 / (1 + numpy.exp(-x)), relu=lambda x: numpy.maximum(x, 0))


def scan(step, state, inputs, unroll):
    states = []
    for x in inputs:
        state, new = step(state, x)
        states.append(new)
    return state, numpy.stack(states)


lax = types.SimpleNamespace(scan=scan)
PYTHON
echo 'from numpy import *' >numpy_jax/jax/numpy.py
PYTHONPATH=numpy_jax SOME="pytorch torch_scan jax_scan_2 jax_scan_1" "$program" bench forward --model gru --seq-len 6 --batch 2 \
  --hidden 3 --forward-chunks 2 --repeats 1 --threads 1 --json --rivals ./some.py >rows.json || fail "exit code $?: bench forward"
python3 - rows.json <<'PYTHON' || fail "a GRU by two libraries"
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
for method in ("pytorch", "torch_scan", "jax_scan_2", "jax_scan_1"):
    found = [row for row in rows if row["method"] == method]
    assert found and all(row["residual"] < 2e-6 and row["median_s"] > 0 for row in found), (method, found)
PYTHON

# ---- JAX, where it is ----

if python3 -c 'import jax' 2>/dev/null; then
  export SOME="torch_scan jax_scan_1 jax_associative_scan jax_rnn jax_rnn_reference"
  # shellcheck disable=SC2086
  check ./some.py lstm $small --layers 2 --input 2
  says "^torch_scan measured$"
  says "^jax_scan_1 measured$"
  says "^jax_associative_scan measured$"
  says '^jax_rnn left out: jax.experimental.rnn calls cuDNN, on a GPU alone; jax_rnn_reference runs here$'
  says "^jax_rnn_reference measured$"
fi
