#!/bin/sh
# test_packages.sh SOURCE PROGRAM SCRATCH: the rivals that need packages which are seldom there (bench/rivals/torch_scan.py,
# torchrl.py, flashrnn.py, jax_rnn.py). Without them every method is refused by name. torchrl's and FlashRNN's kernels, which run
# on GPUs alone, are played by modules of their names on PyTorch: the gradients that come back agree with the program's. PyTorch's
# scan and JAX's reference do where they are installed. Exits 77 where Python has no PyTorch.
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
for name in torch_scan torchrl flashrnn jax_rnn; do
  library=PyTorch
  [ "$name" != jax_rnn ] || library=JAX
  method=$name
  [ "$name" != torchrl ] || method=torchrl_triton
  echo '{"ask": "enter", "method": "'$method'"}' | PYTHONPATH=none python3 "$rivals/$name.py" >lines.txt ||
    fail "exit code $? without libraries: $name"
  grep -q "\"refused\": \"$library is not installed (none in this test): bench/rivals/setup installs it\"" lines.txt ||
    fail "$name without libraries: $(tail -n 1 lines.txt)"
done
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
guests = ("torch_scan", "torchrl", "flashrnn", "jax_rnn")
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
# Both rivals in one program, which lets them run on a processor.
cat >both.py <<PYTHON
#!/usr/bin/env python3
import importlib.util, sys
sys.path.insert(1, "$rivals")
import recurrent

methods = {}
for name in ("torchrl", "flashrnn"):
    spec = importlib.util.spec_from_file_location("rival_" + name, "$rivals/" + name + ".py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for kind in vars(module).values():
        if isinstance(kind, type) and issubclass(kind, recurrent.Autograd):
            kind.devices = ["cpu"]
            methods.update({m: ("PyTorch", __import__("functools").partial(kind, how)) for m, how in module.METHODS.items()})
sys.path.remove("$rivals")
recurrent.serve("both", methods, recurrent.import_torch)
PYTHON
chmod +x both.py
# shellcheck disable=SC2086
check ./both.py gru $small
says "^torchrl_triton left out: needs torchrl (No module named 'torchrl')$"
says "^flashrnn left out: needs flashrnn (No module named 'flashrnn')$"
export PYTHONPATH="$scratch/played"
# shellcheck disable=SC2086
check "$rivals/torchrl.py" gru $small
says "^torchrl_triton left out: torchrl's kernels run on a GPU alone$"
export TORCH_EXTENSIONS_DIR="$scratch/extensions"
# shellcheck disable=SC2086
check ./both.py gru $small
says "^torchrl_triton measured$"
says "^flashrnn left out: needs FlashRNN's kernels, compiled beforehand, below TORCH_EXTENSIONS_DIR$"
mkdir extensions/flashrnn && touch extensions/flashrnn/kernel.so
# shellcheck disable=SC2086
check ./both.py gru $small --layers 2 --input 2
says "^torchrl_triton_tf32x3 measured$"
says "^flashrnn measured$"
says "^flashrnn_fused left out: FlashRNN has no fused kernel of a GRU$"
# shellcheck disable=SC2086
check ./both.py lstm $small --layers 2 --loss all
says "^torchrl_triton measured$"
says "^flashrnn_fused measured$"
# shellcheck disable=SC2086
check ./both.py rnn $small
says "^torchrl_triton left out: torchrl's kernels are of GRU and LSTM in float32$"
says "^flashrnn_fused measured$"

# ---- JAX, where it is ----

if python3 -c 'import jax' 2>/dev/null; then
  # shellcheck disable=SC2086
  check "$rivals/jax_rnn.py" lstm $small --layers 2 --input 2
  says "^jax_rnn left out: jax.experimental.rnn calls cuDNN, on a GPU alone; jax_rnn_reference runs here$"
  says "^jax_rnn_reference measured$"
fi
